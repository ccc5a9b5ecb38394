"""A simulated machine goes down, starts anew with what its boot loader says, and is back a moment later."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from lab.files import read_json, write_json
from lab.hosts.faults import BootsOldKernelLine, Faults, RebootNeverReturns
from lab.hosts.hardware import boot_programs, hardware
from lab.hosts.hardware.kernel import LIB, Kernel
from lab.hosts.machine import Machine
from lab.hosts.service_vm import libvirt
from lab.hosts.systemd import units, user_manager
from lab.hosts.systemd.services import Services

DOWN_SECONDS = 0.3
"""How long a simulated machine is away; a real HGX machine tests its memory for minutes."""
_ANSWER_SECONDS = 0.05
_FORGOTTEN = ("run", "tmp")
"""Folders that live in memory."""
_KEPT = frozenset({"lock"})
_log = logging.getLogger(__name__)

HOOKS: list[Callable[[Machine, Faults], None]] = [libvirt.host_booted, user_manager.booted]
"""What stand-ins forget or start again when the machine boots, in order; before units are started."""


class Chassis(Protocol):
    async def suspend(self) -> None:
        """Take the host off the network."""

    async def stop_machine(self) -> None:
        """Switch off what runs for real under the host, if anything does."""

    async def start_machine(self) -> None:
        """Switch it on."""

    async def resume(self) -> None:
        """Bring the host back to the network."""


class Power:
    """Whether a host is up, and how it comes up again."""

    def __init__(
        self,
        machine: Machine,
        kernel: Kernel,
        services: Services,
        faults: Callable[[], Faults],
        *,
        halt: Callable[[], Awaitable[None]],
        watch: Callable[[], None],
    ) -> None:
        self._machine, self._kernel, self._services = machine, kernel, services
        self._faults, self._halt, self._watch = faults, halt, watch
        self._chassis: Chassis | None = None
        self._task: asyncio.Task[None] | None = None

    def connect(self, chassis: Chassis) -> None:
        """What goes down and comes up with the host."""
        self._chassis = chassis

    def reboot(self) -> None:
        """Go down in a moment, so that whoever gave the order still gets an answer."""
        if self._task is None or self._task.done():
            self._machine.note("power", action="reboot")
            self._machine.state["power"] = "off"
            self._task = asyncio.create_task(self._cycle())
            self._task.add_done_callback(self._report)

    async def resume(self) -> None:
        """Finish a boot that was cut off by the end of the server, or that a fault held up."""
        waiting = self._task is None or self._task.done()
        if waiting and "power" in self._machine.state and self._may_return():
            await self._down()
            await self._up()

    async def close(self) -> None:
        """Stop in the middle; `resume` goes on from there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _may_return(self) -> bool:
        return self._faults().first(RebootNeverReturns) is None

    def _report(self, cycle: asyncio.Task[None]) -> None:
        """A machine that stays down without a fault says why in the server's log."""
        if not cycle.cancelled() and (error := cycle.exception()) is not None:
            _log.error("host %s does not come up", self._machine.name, exc_info=error)

    async def _cycle(self) -> None:
        await asyncio.sleep(_ANSWER_SECONDS)
        await self._down()
        if not self._may_return():
            return
        await asyncio.sleep(DOWN_SECONDS)
        await self._up()

    async def _down(self) -> None:
        if self._chassis is not None:
            await self._chassis.suspend()
        await self._halt()
        if self._chassis is not None:
            await self._chassis.stop_machine()

    async def _up(self) -> None:
        machine = self._machine
        machine.state["power"] = "booting"
        boot(machine, self._kernel, self._faults())
        self._watch()
        if self._chassis is not None:
            await self._chassis.start_machine()
        await self._services.boot()
        hardware.apply(machine.folder, machine.board, self._faults())
        machine.state.pop("power", None)
        machine.save()
        machine.note("power", action="up", line=self._kernel.command_line)
        if self._chassis is not None:
            await self._chassis.resume()


def boot(machine: Machine, kernel: Kernel, injected: Faults) -> None:
    """Everything between the firmware and the first unit."""
    # A boot finds the hardware anew; what is wrong with it shows again when the machine is up.
    hardware.take_back(machine.folder)
    line = kernel.command_line
    if injected.first(BootsOldKernelLine) is None:
        line = f"BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic {_next_line(machine)}"
    for name in _FORGOTTEN:
        _empty(machine.folder.root / name)
    boot_id = str(uuid4())
    identity = machine.folder.identity
    write_json(identity, {**read_json(identity), "boot_id": boot_id})
    machine.path(f"{LIB}/proc/boot_id").write_text(f"{boot_id}\n")
    machine.folder.virtual_machines.unlink(missing_ok=True)
    kernel.boot(line, boot_programs.blacklisted(machine))
    for module in _modules_to_load(machine):
        if not kernel.refuses(module):
            kernel.load(module)
    units.rebooted(machine)
    for hook in HOOKS:
        hook(machine, injected)


def _next_line(machine: Machine) -> str:
    for path in (boot_programs.GRUB_CONFIG, boot_programs.ENTRY):
        line = boot_programs.next_line(machine.read_text(path) or "")
        if line is not None:
            return line
    return boot_programs.FIXED


def _modules_to_load(machine: Machine) -> list[str]:
    """modules-load.d(5)."""
    names: list[str] = []
    folder = machine.path("/etc/modules-load.d")
    for file in sorted(folder.glob("*.conf")) if folder.is_dir() else []:
        words = (line.strip() for line in file.read_text().splitlines())
        names += [word for word in words if word and word[0] not in "#;"]
    return names


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name in _KEPT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
