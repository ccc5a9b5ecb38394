"""Faults of a simulated host: what can be made to go wrong, by name, while it runs.

Kept in the host's `faults.json`, which its server reads again for every connection and command.

    inject(folder, "hgx-01", DiskFull(path="/etc/cdi"))
    clear(folder, "hgx-01")
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from lab.files import read_json, write_json
from lab.hosts import control
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.hardware import hardware
from lab.hosts.hardware.board import board
from lab.hosts.hardware.boot_faults import BootsOldKernelLine as BootsOldKernelLine
from lab.hosts.hardware.boot_faults import DeviceHeld as DeviceHeld
from lab.hosts.hardware.boot_faults import DeviceRefusesUnbind as DeviceRefusesUnbind
from lab.hosts.hardware.boot_faults import InitramfsFails as InitramfsFails
from lab.hosts.hardware.boot_faults import RebootNeverReturns as RebootNeverReturns
from lab.hosts.hardware.hardware_faults import Faults as Faults
from lab.hosts.hardware.hardware_faults import GpuFault as _GpuFault
from lab.hosts.hardware.hardware_faults import GpuFellOffTheBus as GpuFellOffTheBus
from lab.hosts.hardware.hardware_faults import HardwareFault
from lab.hosts.hardware.hardware_faults import ResetNotSupported as ResetNotSupported
from lab.hosts.model import HostsError
from lab.hosts.nvidia.driver_faults import GpuInUse as GpuInUse
from lab.hosts.nvidia.driver_faults import PackageGone as PackageGone
from lab.hosts.nvidia.driver_faults import SecureBoot as SecureBoot
from lab.hosts.rke2.rke2_faults import DownloadRefused as DownloadRefused
from lab.hosts.rke2.rke2_faults import JoinFails as JoinFails
from lab.hosts.rke2.rke2_faults import JoinIsSlow as JoinIsSlow
from lab.hosts.rke2.rke2_faults import PortTaken as PortTaken
from lab.hosts.service_vm.fabric_faults import BaseFault as _Fault
from lab.hosts.service_vm.fabric_faults import FabricAnswers as FabricAnswers
from lab.hosts.service_vm.fabric_faults import FabricManager as FabricManager
from lab.hosts.service_vm.fabric_faults import FabricRestarts as FabricRestarts
from lab.hosts.service_vm.fabric_faults import LinksDegraded as LinksDegraded
from lab.hosts.service_vm.fabric_faults import ModuleMapShuffled as ModuleMapShuffled
from lab.hosts.service_vm.fabric_faults import ModuleNameUnknown as ModuleNameUnknown
from lab.hosts.service_vm.fabric_faults import PartitionBusy as PartitionBusy
from lab.hosts.service_vm.fabric_faults import PartitionUnsupported as PartitionUnsupported
from lab.hosts.service_vm.fabric_faults import ToolMissing as ToolMissing
from lab.hosts.service_vm.service_vm_guest import (
    FabricManagerStaysResident as FabricManagerStaysResident,
)
from lab.hosts.service_vm.service_vm_guest import LibvirtDown as LibvirtDown
from lab.hosts.service_vm.service_vm_guest import VmDoesNotBoot as VmDoesNotBoot
from lab.hosts.service_vm.service_vm_guest import VmIgnoresShutdown as VmIgnoresShutdown
from lab.hosts.service_vm.service_vm_guest import VmRefusesSsh as VmRefusesSsh
from lab.hosts.usernetes.rootless_faults import RootlessFault
from lab.hosts.usernetes.usernetes_faults import UsernetesFault


class _CommandFault(_Fault):
    command: str = ""
    """Regular expression, searched in the command line; empty: every command."""

    @field_validator("command")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def concerns(self, command: str) -> bool:
        """Whether this command is meant."""
        return re.search(self.command, command) is not None


class DropConnectionAfter(_Fault):
    """The connection breaks (reset) once this many bytes have passed, both ways together."""

    kind: Literal["drop-connection-after"] = "drop-connection-after"
    bytes: int = Field(ge=0)


class WrongHostKey(_Fault):
    """The host shows another host key than the one it was set up with."""

    kind: Literal["wrong-host-key"] = "wrong-host-key"


class RefuseConnections(_Fault):
    """Nothing listens on the host's port."""

    kind: Literal["refuse-connections"] = "refuse-connections"


class DiskFull(_Fault):
    """The file system that holds this folder has no space left."""

    kind: Literal["disk-full"] = "disk-full"
    path: str

    @field_validator("path")
    @classmethod
    def _is_a_folder_of_the_host(cls, value: str) -> str:
        if not value.startswith("/") or value == "/" or ".." in value.split("/"):
            raise ValueError("has to be the absolute path of a folder below /")
        return value.rstrip("/")


class Hang(_CommandFault):
    """Matching commands never end; they can still be interrupted by closing the connection."""

    kind: Literal["hang"] = "hang"


class Slow(_CommandFault):
    """Matching commands start this many seconds late."""

    kind: Literal["slow"] = "slow"
    seconds: float = Field(ge=0)


class CommandFails(_CommandFault):
    """Matching commands are not run but answered with this; `times`: only so often, then run."""

    kind: Literal["command-fails"] = "command-fails"
    exit: int = Field(ge=0, le=255)
    stdout: str = ""
    stderr: str = ""
    times: int | None = Field(default=None, ge=1)


class PackageManagerLocked(_Fault):
    """Another process holds the package manager's lock."""

    kind: Literal["package-manager-locked"] = "package-manager-locked"


class PackageInstallationCutOff(_Fault):
    """An installation was killed in the middle: apt refuses everything until dpkg has finished it."""

    kind: Literal["package-installation-cut-off"] = "package-installation-cut-off"


class SudoNeedsPassword(_Fault):
    """`sudo` asks for a password, which `sudo -n` answers by failing."""

    kind: Literal["sudo-needs-password"] = "sudo-needs-password"


class ResetHangs(_GpuFault):
    """A reset of the GPU never ends."""

    kind: Literal["reset-hangs"] = "reset-hangs"


class MemoryNotCleared(_GpuFault):
    """The GPU never reports that its memory is clear."""

    kind: Literal["memory-not-cleared"] = "memory-not-cleared"


class KnobsChanged(_GpuFault):
    """A knob reads like this whatever it is set to."""

    kind: Literal["knobs-changed"] = "knobs-changed"
    knob: Literal["ecc", "mig", "cc", "ppcie"] = "ecc"
    value: str = "disabled"


class FirmwareChanged(_GpuFault):
    """The inventory shows another firmware version for the GPU, as after a tenant's tampering."""

    kind: Literal["firmware-changed"] = "firmware-changed"
    version: str = "96.00.A5.00.FF"


class BmcSilent(_Fault):
    """The management controller accepts connections and never says a word."""

    kind: Literal["bmc-silent"] = "bmc-silent"


Fault = Annotated[
    DropConnectionAfter
    | WrongHostKey
    | RefuseConnections
    | DiskFull
    | Hang
    | Slow
    | CommandFails
    | FabricManager
    | PartitionBusy
    | PartitionUnsupported
    | FabricAnswers
    | FabricRestarts
    | LinksDegraded
    | ModuleMapShuffled
    | ModuleNameUnknown
    | ToolMissing
    | PackageManagerLocked
    | PackageInstallationCutOff
    | SudoNeedsPassword
    | ResetNotSupported
    | ResetHangs
    | MemoryNotCleared
    | GpuFellOffTheBus
    | KnobsChanged
    | FirmwareChanged
    | HardwareFault
    | BmcSilent
    | FabricManagerStaysResident
    | LibvirtDown
    | VmDoesNotBoot
    | VmIgnoresShutdown
    | VmRefusesSsh
    | BootsOldKernelLine
    | DeviceHeld
    | DeviceRefusesUnbind
    | InitramfsFails
    | RebootNeverReturns
    | DownloadRefused
    | JoinFails
    | JoinIsSlow
    | PortTaken
    | SecureBoot
    | GpuInUse
    | PackageGone
    | RootlessFault
    | UsernetesFault,
    Field(discriminator="kind"),
]

_FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)
_FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


def parse(kind: str, values: dict[str, Any]) -> Fault:
    """A fault from its name and values; `HostsError` says what is wrong with them."""
    try:
        return _FAULT.validate_python({"kind": kind, **values})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'][1:]) or 'kind'}: {item['msg']}"
            for item in error.errors()
        )
        raise HostsError(f"fault {kind!r}: {problems}") from None


def read(host: HostFolder) -> Faults:
    """The faults that are injected now."""
    content = read_json(host.faults)
    return Faults(_FAULTS.validate_python(content) if content else ())


def inject(folder: Path, host: str, *faults: Fault) -> None:
    """Add faults to a host; they hold from its next connection or command on."""
    with _change(folder, host) as entry:
        now = [*read(entry), *faults]
        write_json(entry.faults, [fault.model_dump(mode="json") for fault in now])


def clear(folder: Path, host: str) -> None:
    """Take all faults off a host."""
    with _change(folder, host) as entry:
        entry.faults.unlink(missing_ok=True)


class BusyError(HostsError):
    """A GPU's `/dev/vfio/<group>` is held open: who opens it as well is told EBUSY."""


def set_partition_in_use(folder: Path, host: str, partition: int, holder: str | None) -> None:
    """Say that a virtual machine `holder` runs on the GPUs of a partition; None: none does.

    What a client can see of it: the GPUs' `/dev/vfio/<group>` are held open by the process of that
    machine (`fuser`). The fabric manager itself does not know and drops the partition when told.

    Raises:
        BusyError: another virtual machine has one of the GPUs.
    """
    with _change(folder, host) as entry:
        its = board(read_json(entry.identity)["platform"])
        modules = set(its.modules(partition))
        users: dict[str, dict[str, Any]] = read_json(entry.virtual_machines) or {}
        for number, user in users.items() if holder is not None else ():
            shared = modules.intersection(its.modules(int(number)))
            if shared and user["holder"] != holder:
                raise BusyError(
                    f"{host}: GPU {min(shared)}: its VFIO group is held open by {user['holder']}:"
                    " Device or resource busy"
                )
        users.pop(str(partition), None)
        if holder is not None:
            users[str(partition)] = {"holder": holder, "pid": 4200 + partition}
        write_json(entry.virtual_machines, users)


def end_virtual_machine(folder: Path, host: str, holder: str) -> None:
    """The virtual machine is gone, and lets go of what it held; of others' nothing changes."""
    with _change(folder, host) as entry:
        users: dict[str, dict[str, Any]] = read_json(entry.virtual_machines) or {}
        kept = {number: user for number, user in users.items() if user["holder"] != holder}
        write_json(entry.virtual_machines, kept)


@contextmanager
def _change(folder: Path, host: str) -> Iterator[HostFolder]:
    entry = HostsFolder(folder).host(host)
    if not entry.identity.exists():
        raise HostsError(
            f"there is no simulated host {host!r} in {folder}; start it first, or check its name"
        )
    lock = os.open(entry.path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield entry
        _show(entry)
    finally:
        os.close(lock)
    # A port that has to stop or start listening needs the server's hand; all else is read on use.
    control.tell(HostsFolder(folder), f"faults {host}")


def _show(entry: HostFolder) -> None:
    """Let faults of the hardware be seen in the host's files."""
    hardware.apply(entry, board(read_json(entry.identity)["platform"]), read(entry))
