"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.warmkit import Warm, warm_engine


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Commands of the engine that start quickly; for tests that are not about how it starts."""
    with warm_engine() as made:
        yield made
