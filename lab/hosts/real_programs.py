"""containerd and kubelet of a host that is one machine with a real node: its units act on real processes.

Both count as up when they answer, containerd on its socket and the kubelet on its health port. One that
ends before that is stopped and its unit has failed: the node's first process would start it again for ever,
as `Restart=always` does, and say nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab.hosts import real_machine
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.network import Network
from lab.hosts.real_machine import RealMachine
from lab.hosts.standins import units

PROGRAMS = {"containerd.service": "containerd", "kubelet.service": "kubelet"}
_CONTAINERD_SOCKET = "run/containerd/containerd.sock"
_KUBELET_HEALTH = ("127.0.0.1", 10248)
_UP_SECONDS = 60.0
_POLL_SECONDS = 0.1
_KEPT_BYTES = 64 * 1024
"""A kubelet says much; of what a journal would keep, this much of its end is shown."""


@dataclass
class RealPrograms:
    """The programs of the node under one host; while there is none, `runs` is False of every unit."""

    machine: Machine
    node: RealMachine | None = None
    network: Network | None = None
    _read: dict[str, int] = field(default_factory=dict)
    """How much of a program's log was copied to its unit's, by unit."""

    def runs(self, unit: str) -> bool:
        """Whether this unit stands for a real process."""
        return (
            self.node is not None
            and unit in PROGRAMS
            and units.text(self.machine, unit) is not None
            and not units.has_program(self.machine, unit)
        )

    async def start(self, unit: str, action: str) -> bool:
        """Start or restart the program, and wait until it answers; False when it ends before."""
        again = action != "start"
        try:
            pid = await self._control(unit, "restart" if again else "start")
            up = await self._comes_up(unit, pid)
            if not up:
                await self._control(unit, "stop")
        except HostsError as error:
            up, pid = False, None
            units.log(self.machine, unit, str(error))
        self.collect(unit)
        if up:
            units.started(self.machine, unit, action)
            units.state(self.machine, unit)["pid"] = pid
        else:
            units.failed(self.machine, unit, "the program ended", action)
        return up

    async def stop(self, unit: str) -> None:
        """End the program."""
        try:
            await self._control(unit, "stop")
        except HostsError as error:
            units.log(self.machine, unit, str(error))
        self.collect(unit)

    async def look(self) -> None:
        """Let the units say what the processes are: they may have been ended or started past systemd."""
        for unit in filter(self.runs, PROGRAMS):
            try:
                pid = await self._control(unit, "state")
            except HostsError:
                pid = None
            entry = units.state(self.machine, unit)
            if pid is not None:
                entry.update(active="active", pid=pid)
            elif entry["active"] in {"active", "activating"}:
                entry.update(active="activating", pid=0)

    def collect(self, unit: str) -> None:
        """Add what the program said since the last time to what the journal shows of its unit."""
        if self.node is None or not self.runs(unit):
            return
        log = self.node.log(PROGRAMS[unit])
        size = log.stat().st_size if log.exists() else 0
        begin = self._read.get(unit, 0)
        begin = max(0 if begin > size else begin, size - _KEPT_BYTES)
        if size:
            with log.open("rb") as file:
                file.seek(begin)
                said = file.read(size - begin)
            with units.log_path(self.machine, unit).open("ab") as journal:
                journal.write(said)
        self._read[unit] = size

    def forget(self) -> None:
        """A new boot: what was said before is not shown."""
        for unit in filter(self.runs, PROGRAMS):
            log = self.node.log(PROGRAMS[unit]) if self.node is not None else Path()
            self._read[unit] = log.stat().st_size if log.is_file() else 0

    async def _comes_up(self, unit: str, pid: int | None) -> bool:
        deadline = time.monotonic() + _UP_SECONDS
        while pid is not None and await self._control(unit, "state") == pid:
            # One that lives and is only slow is left to do so: systemd waits longer than a test can.
            if time.monotonic() > deadline or await asyncio.to_thread(self._answers, unit):
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    def _answers(self, unit: str) -> bool:
        if self.node is None or self.network is None:
            return False
        if PROGRAMS[unit] == "kubelet":
            return self.network.answers(*_KUBELET_HEALTH)
        # By the root of the node's first process, whose /run is its own.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(Path(f"/proc/{self.node.pid}/root") / _CONTAINERD_SOCKET))
            except OSError:
                return False
        return True

    async def _control(self, unit: str, action: str) -> int | None:
        if self.node is None:
            return None
        return await asyncio.to_thread(
            real_machine.control, self.node.nodes, self.node.name, PROGRAMS[unit], action
        )
