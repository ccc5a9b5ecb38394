"""Units of simulated hosts that are started and stopped in the same moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lab.hosts.faults import Faults
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.systemd import units
from lab.hosts.systemd.services import Services
from lab.hosts.views import Command

UNIT = "probe.service"


class Program:
    """Runs until it is killed."""

    def __init__(self) -> None:
        self.problem = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        return 137

    def kill(self) -> None:
        self._ended.set()


@pytest.mark.parametrize("kind", ["simple", "notify"])
def test_a_unit_that_is_stopped_while_it_starts_stays_stopped(tmp_path: Path, kind: str) -> None:
    machine = Machine(HostFolder(tmp_path), board("plain-server"))
    file = machine.path(f"{units.UNIT_DIRECTORY}/{UNIT}")
    file.parent.mkdir(parents=True)
    service = f"Type={kind}\nExecStart=/usr/bin/probe\nRestart=always"
    file.write_text(f"[Service]\n{service}\n")
    machine.path("/var/log").mkdir(parents=True)
    started: list[Program] = []

    async def start(command: Command, files: tuple[int, int, int]) -> Program:
        del command, files
        started.append(Program())
        return started[-1]

    async def story() -> None:
        services = Services(machine, start, Faults)  # type: ignore[arg-type]
        starting = asyncio.create_task(services.start(UNIT))
        while not started:
            await asyncio.sleep(0)
        await services.stop(UNIT)
        assert not await starting
        # Longer than a unit waits before it restarts.
        await asyncio.sleep(0.2)
        assert len(started) == 1
        assert not units.is_active(machine, UNIT)

    asyncio.run(story())
