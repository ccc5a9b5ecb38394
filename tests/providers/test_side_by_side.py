"""Machines that hang do not keep the others from being worked on, however many they are."""

import contextlib
import threading
from collections.abc import Callable

from gpuclusters.host.resource import HostFileProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed

HANGING = 6
"""More than the four calls at a time that the SDK's own process would take."""


def test_a_step_is_taken_while_others_hang(
    hosts: Callable[..., list[SimulatedHost]], start_provider: StartProvider
) -> None:
    well, *ill = hosts(1 + HANGING)
    # None of them may give up while the others are waited for.
    patience = {"GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS": "600"}
    provider = start_provider(well, own=True, **patience)

    def create(host: SimulatedHost) -> str:
        file = {"path": "/etc/gpu-clusters/a", "content": "a"}
        return provider.create(HostFileProvider, {"connection": host.connection, **file}).id

    def hang(host: SimulatedHost) -> None:
        with contextlib.suppress(StepFailed):  # the provider is killed in the end
            create(host)

    for host in ill:
        host.inject(faults.Hang())
    threads = [threading.Thread(target=hang, args=(host,)) for host in ill]
    for thread in threads:
        thread.start()
    eventually(lambda: all(host.journal("connection") for host in ill), "all steps have begun")
    assert create(well) == f"{well.name}:/etc/gpu-clusters/a"
    assert all(thread.is_alive() for thread in threads)
    provider.kill()
    for thread in threads:
        thread.join()
