"""containerd and kubelet of a host that is one machine with a real node: its units act on real processes.

A program that ends again as soon as it was started is stopped, and its unit has failed; the node would start
it for ever, as `Restart=always` does, and `systemctl` would have nothing to say.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.rke2 import real_machine
from lab.hosts.rke2.real_machine import RealMachine
from lab.hosts.systemd import units

PROGRAMS = {"containerd.service": "containerd", "kubelet.service": "kubelet"}
_KEPT_BYTES = 64 * 1024
"""A kubelet says much; of what a journal would keep, this much of its end is shown."""


@dataclass
class RealPrograms:
    """The programs of the node under one host; while there is none, `runs` is False of every unit."""

    machine: Machine
    node: RealMachine | None = None
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
        """Start or restart the program, and wait until it works; False when it ends before."""
        why = f"{PROGRAMS[unit]} ended at once"
        try:
            pid = await self._control(unit, "start" if action == "start" else "restart")
        except HostsError as error:
            pid, why = None, str(error)
            await self._end(unit)
        self.collect(unit)
        if pid is None:
            units.failed(self.machine, unit, why, action)
            return False
        units.started(self.machine, unit, action)
        units.state(self.machine, unit)["pid"] = pid
        return True

    async def stop(self, unit: str) -> None:
        await self._end(unit)
        self.collect(unit)

    async def look(self) -> None:
        """Let the units say what the processes are: they may have been ended or started past systemd."""
        for unit in filter(self.runs, PROGRAMS):
            entry = units.state(self.machine, unit)
            try:
                pid, wanted = await asyncio.to_thread(self._state, unit)
            except HostsError:
                # A node whose programs have not begun; systemd has nothing better to say.
                continue
            if pid is not None:
                entry.update(active="active", pid=pid)
            elif entry["active"] in {"active", "activating"}:
                entry.update(active="activating" if wanted else "inactive", pid=0)

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

    async def _end(self, unit: str) -> None:
        try:
            await self._control(unit, "stop")
        except HostsError as error:
            units.log(self.machine, unit, str(error))

    async def _control(self, unit: str, action: str) -> int | None:
        if self.node is None:
            return None
        return await asyncio.to_thread(
            real_machine.control, self.node.nodes, self.node.name, PROGRAMS[unit], action
        )

    def _state(self, unit: str) -> tuple[int | None, bool]:
        if self.node is None:
            return None, False
        return real_machine.state(self.node.nodes, self.node.name, PROGRAMS[unit])
