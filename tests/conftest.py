"""What all tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.fixtures.control_plane", "tests.fixtures.hosts"]


@pytest.fixture(autouse=True)
def event_loop_of_the_thread() -> Iterator[None]:
    """Outputs of Pulumi need one; `asyncio.run` in another test of this process takes it away."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
