"""Providers in the SDK's own process, against simulated hosts over real SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.hosts import SimulatedHost, hosts, hosts_pool
from tests.providers.provider_process import ProviderProcess, provider_process

__all__ = ["host", "hosts", "hosts_pool", "start_provider"]

StartProvider = Callable[..., ProviderProcess]


@pytest.fixture
def start_provider(tmp_path: Path) -> Iterator[StartProvider]:
    """Starts provider processes that end with the test."""
    with ExitStack() as stack:

        def start(host: SimulatedHost | None = None, **environment: str) -> ProviderProcess:
            key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key)} if host else {}
            config: dict[str, Any] = {}
            return stack.enter_context(
                provider_process(tmp_path / "provider.err", key | environment, config)
            )

        yield start


@pytest.fixture
def host(hosts: Callable[..., list[SimulatedHost]]) -> SimulatedHost:
    """One simulated machine with an HGX H100 board."""
    (made,) = hosts()
    return made
