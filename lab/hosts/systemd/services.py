"""Runs what systemd units of a host start: real processes on the simulated machine.

Units that an operating system brings along (containerd, kubelet, …) are stand-ins without a process, unless
the host is one machine with a real node, whose containerd and kubelet they then are (`real_programs.py`).
Everything with a unit file of its own is started for real: `Type=oneshot` ends before the next unit
starts, `notify` is ready when it says so (`systemd-notify --ready`, or a stand-in that stays),
`simple` and `exec` as soon as they run. A service whose process ends is `failed`, or `inactive` after
exit code 0; `Restart=` is done a few times. Their output is what `journalctl` shows.
"""

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine
from lab.hosts.rke2.real_programs import RealPrograms
from lab.hosts.systemd import units
from lab.hosts.views import Command, Running, environment

NOTIFY_VARIABLE = "NOTIFY_SOCKET"
"""Holds the unit's name here: what a service has to say goes to the server anyway."""
_READY_SECONDS = 60.0
_ALIVE_SECONDS = 0.05
_RESTARTS = 3
_NO_TIMEOUT = ("0", "infinity")

Start = Callable[[Command, tuple[int, int, int]], Awaitable[Running]]


@dataclass(slots=True)
class _Process:
    running: Running
    ended: asyncio.Task[int]
    watcher: asyncio.Task[None] | None = None


class Services:
    """The units of one host that have processes."""

    def __init__(self, machine: Machine, start: Start, faults: Callable[[], Faults]) -> None:
        self._machine = machine
        self._start = start
        self._faults = faults
        self.real = RealPrograms(machine)
        self._processes: dict[str, _Process] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._restarts: dict[str, int] = {}

    async def start(self, unit: str, *, action: str = "start") -> bool:
        """Start a unit and what it requires; False when it fails."""
        for needed in units.words(self._machine, unit, "Unit", "Requires"):
            known = units.text(self._machine, needed) is not None
            up = not known or units.is_active(self._machine, needed) or await self.start(needed)
            if not up:
                units.failed(self._machine, unit, f"dependency {needed} failed", action)
                return False
        if self.real.runs(unit):
            return await self.real.start(unit, action)
        if not units.has_program(self._machine, unit):
            return units.start(self._machine, unit, self._faults(), action=action)
        await self.stop(unit, note=False)
        self._restarts.pop(unit, None)
        return await self._run(unit, action)

    async def stop(self, unit: str, *, note: bool = True) -> None:
        process = self._processes.pop(unit, None)
        if process is not None:
            if process.watcher is not None:
                process.watcher.cancel()
            process.running.kill()
            await process.ended
        if self.real.runs(unit):
            await self.real.stop(unit)
        if note:
            for line in units.commands(self._machine, unit, "ExecStop"):
                await self._finish(unit, line)
            units.stop(self._machine, unit)

    async def boot(self) -> None:
        """Start all enabled units in the order that they ask for."""
        self.real.forget()
        for unit in units.boot_order(self._machine):
            if not units.is_active(self._machine, unit):
                await self.start(unit, action="start")
        for unit in filter(self.real.runs, units.known(self._machine)):
            # A node's programs come up with it; a unit that is disabled does not.
            if not units.state(self._machine, unit)["enabled"]:
                await self.real.stop(unit)
        self._machine.save()

    async def resume(self) -> None:
        """Start again what ran when the hosts' server went away; on the machine it never stopped."""
        for unit in units.known(self._machine):
            ran = units.is_active(self._machine, unit) and units.has_program(self._machine, unit)
            stays = units.kind(self._machine, unit) != "oneshot"
            if ran and stays and unit not in self._processes:
                await self._run(unit, None)

    async def halt(self) -> None:
        """The machine goes down: all processes end."""
        for unit in list(self._processes):
            await self.stop(unit, note=False)

    def said_ready(self, unit: str) -> None:
        """A service of `Type=notify` says that it is up."""
        if unit in self._ready:
            self._ready[unit].set()

    async def _run(self, unit: str, action: str | None) -> bool:
        for line in units.commands(self._machine, unit, "ExecStartPre"):
            if await self._finish(unit, line) != 0:
                return self._fail(unit, "ExecStartPre failed", action)
        kind = units.kind(self._machine, unit)
        lines = units.commands(self._machine, unit, "ExecStart")
        if not lines:  # a timer, a target: up as soon as it is asked for
            units.started(self._machine, unit, action)
            return True
        if kind == "oneshot":
            for line in lines:
                code = await self._finish(unit, line)
                if code != 0:
                    return self._fail(unit, f"exit code {code}", action)
            units.started(self._machine, unit, action)
            return True
        self._ready[unit] = asyncio.Event()
        units.activating(self._machine, unit)
        running = await self._spawn(unit, lines[0])
        process = _Process(running, asyncio.create_task(running.wait()))
        self._processes[unit] = process
        up = await self._is_up(unit, kind, process)
        if self._processes.get(unit) is not process:
            return False  # stopped or started anew meanwhile: neither up nor failed
        if not up:
            del self._processes[unit]
            process.running.kill()
            code = await process.ended
            return self._fail(unit, f"exit code {code}", action)
        for line in units.commands(self._machine, unit, "ExecStartPost"):
            await self._finish(unit, line)
        if self._processes.get(unit) is not process:
            return False
        units.started(self._machine, unit, action)
        process.watcher = asyncio.create_task(self._watch(unit, process))
        return True

    async def _is_up(self, unit: str, kind: str, process: _Process) -> bool:
        ready = asyncio.create_task(self._ready[unit].wait())
        try:
            patience: float | None = _READY_SECONDS if kind == "notify" else _ALIVE_SECONDS
            if units.value(self._machine, unit, "Service", "TimeoutStartSec") in _NO_TIMEOUT:
                patience = None
            await asyncio.wait(
                {ready, process.ended}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if kind == "notify":
            return self._ready[unit].is_set()
        # A simple service is up once it was started; what it says by ending is seen afterwards.
        return True

    def _fail(self, unit: str, why: str, action: str | None) -> bool:
        units.failed(self._machine, unit, why, action or "start")
        self._machine.save()
        return False

    async def _watch(self, unit: str, process: _Process) -> None:
        """Notice the end of a service that was up."""
        code = await asyncio.shield(process.ended)
        wish = units.value(self._machine, unit, "Service", "Restart") or "no"
        again = wish == "always" or (wish == "on-failure" and code != 0)
        if again and self._restarts.get(unit, 0) < _RESTARTS:
            self._restarts[unit] = self._restarts.get(unit, 0) + 1
            # Whoever stops the unit meanwhile finds this process, and ends this watch with it.
            await asyncio.sleep(_ALIVE_SECONDS)
            with contextlib.suppress(ConnectionAbortedError):  # the machine goes down
                await self._run(unit, "restart")
        elif code != 0:
            units.failed(self._machine, unit, f"exit code {code}", "exit")
        else:
            units.ended(self._machine, unit)
        if self._processes.get(unit) is process:
            del self._processes[unit]
        self._machine.save()

    async def _finish(self, unit: str, line: str) -> int:
        """Run a command of a unit to its end; a `-` before it means that failure does not matter."""
        running = await self._spawn(unit, line)
        code = await running.wait()
        if running.problem:
            units.log(self._machine, unit, running.problem)
        return 0 if line.startswith("-") else code

    async def _spawn(self, unit: str, line: str) -> Running:
        argv = shlex.split(line.lstrip("-@:+!"))
        values = {**environment(0), **self._environment(unit)}
        values["INVOCATION_ID"] = f"{int(time.time() * 1e6):032x}"
        values[NOTIFY_VARIABLE] = unit
        folder = units.value(self._machine, unit, "Service", "WorkingDirectory") or "/"
        log = os.open(units.log_path(self._machine, unit), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            return await self._start(
                Command(argv, uid=0, cwd=folder, environment=values), (nothing, log, log)
            )
        finally:
            os.close(log)
            os.close(nothing)

    def _environment(self, unit: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for path in units.values(self._machine, unit, "Service", "EnvironmentFile"):
            text = self._machine.read_text(path.lstrip("-")) or ""
            for line in text.splitlines():
                key, separator, value = line.strip().partition("=")
                if separator and not key.startswith("#"):
                    found[key] = value.strip("'\"")
        for line in units.values(self._machine, unit, "Service", "Environment"):
            for word in shlex.split(line):
                key, _, value = word.partition("=")
                found[key] = value
        return found
