"""Providers in the SDK's own process, against simulated hosts over real SSH."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import ProviderProcess, provider_process

StartProvider = Callable[..., ProviderProcess]


@pytest.fixture(scope="session")
def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProvider]:
    """One process per environment for all tests of this worker, as one `up` has one too."""
    folder = tmp_path_factory.mktemp("providers")
    running: dict[tuple[tuple[str, str], ...], ProviderProcess] = {}
    with ExitStack() as stack:

        def share(environment: dict[str, str]) -> ProviderProcess:
            key = tuple(sorted(environment.items()))
            if key not in running or running[key].process.poll() is not None:
                stderr = folder / f"{len(running)}.err"
                running[key] = stack.enter_context(provider_process(stderr, environment))
            return running[key]

        yield share


@pytest.fixture
def start_provider(tmp_path: Path, shared_processes: StartProvider) -> Iterator[StartProvider]:
    """A provider process that knows the host's key; `own=True` for one that may be killed."""
    with ExitStack() as stack:

        def start(
            host: SimulatedHost | None = None, *, own: bool = False, **environment: str
        ) -> ProviderProcess:
            if host:
                environment["GPU_CLUSTERS_SSH_KEY_FILE"] = str(host.client_key)
            if own:
                return stack.enter_context(provider_process(tmp_path / "provider.err", environment))
            return shared_processes(environment)

        yield start


@pytest.fixture
def host(hosts: Callable[..., list[SimulatedHost]]) -> SimulatedHost:
    """One simulated machine with an HGX H100 board."""
    (made,) = hosts()
    return made


@pytest.fixture
def provider(host: SimulatedHost, start_provider: StartProvider) -> ProviderProcess:
    """The process that knows that machine's key."""
    return start_provider(host)


@pytest.fixture(scope="module")
def shared_machine(hosts_pool: Any) -> SimulatedHost:
    """One such machine for all tests of a module."""
    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    return made


@pytest.fixture
def machine(shared_machine: SimulatedHost) -> Iterator[SimulatedHost]:
    """The machine of the module; faults are taken off again."""
    yield shared_machine
    shared_machine.clear_faults()
