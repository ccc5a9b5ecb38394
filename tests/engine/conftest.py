"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import secrets
from tests.engine.diskkit import manager
from tests.engine.warmkit import warm_programs


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """Programs that start quickly; for tests that are not about how they start."""
    with warm_programs() as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keys are derived in no time."""
    monkeypatch.setattr(secrets, "ITERATIONS", 1)
    for cache in (secrets._derive, manager):
        cache.cache_clear()
    yield
    secrets._derive.cache_clear()
    manager.cache_clear()
