"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.components.recorder import own_event_loop

# All workers and hundreds of commands import the same modules: where an environment forbids to keep
# bytecode, half of what tests cost is compiling. What is written is ignored by git, as everywhere.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes, or its making, says how busy the machine is and not whether the code is right.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# In CI the same examples every time: what a change did not break must not fail by chance. On a
# developer's machine each run looks at others.
settings.register_profile("ci", settings.get_profile("patient"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")

# What thousands of imports leave is never garbage: it is not looked through while it is made, nor by tests.
gc.disable()

pytest_plugins = [
    "tests.fixtures.distribution",
    "tests.fixtures.control_plane",
    "tests.fixtures.hosts",
    "tests.fixtures.loopback",
    "tests.fixtures.own_port",
    "tests.fixtures.tenancies",
    "tests.fixtures.accounts",
    "tests.fixtures.kubelet",
    "tests.fixtures.skips",
]


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def event_loop_of_the_thread() -> Iterator[None]:
    """Outputs of Pulumi need one; `asyncio.run` in another test of this process takes it away."""
    with own_event_loop():
        yield
