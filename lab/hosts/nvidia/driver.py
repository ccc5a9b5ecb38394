"""NVIDIA's driver on a simulated machine: what is installed, what the kernel runs, which GPUs it serves.

Sources: the driver's README (`/proc/driver/nvidia/version`, "Key was rejected by service" under Secure Boot),
NVIDIA's architecture matrix (Volta ends with branch 580, and has no open modules), the Fabric Manager User
Guide (its version is the driver's, and GPUs behind NVSwitches do not start before it has).
"""

import shutil
import uuid
from dataclasses import dataclass
from typing import Any

from lab.hosts.faults import Faults, GpuFellOffTheBus, GpusReplaced, SecureBoot
from lab.hosts.machine import Machine
from lab.hosts.packages.catalogue import DriverPackage, Part, of_the_driver

MODULE = "nvidia"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PROC = "/usr/local/lib/lab-host/proc/driver"
_VOLTA = ("1db1", "1db4", "1db5", "1db6")
_LAST_OF_VOLTA = 580
_MODULES = (Part.PREBUILT, Part.DKMS)


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel module: on the disk, or loaded."""

    version: str
    is_open: bool
    is_signed: bool

    @property
    def licence(self) -> str:
        """What `modinfo -F license` says; it tells open modules from proprietary ones."""
        return "Dual MIT/GPL" if self.is_open else "NVIDIA"


def packages(machine: Machine) -> list[DriverPackage]:
    """The driver's packages that are installed."""
    return list(of_the_driver(machine.system, machine.packages))


def module(machine: Machine) -> Module | None:
    """The module on the disk, which the next load takes."""
    for package in packages(machine):
        if package.part in _MODULES:
            return Module(package.driver, package.is_open, package.part is Part.PREBUILT)
    return None


def userland(machine: Machine) -> str | None:
    """The version of `nvidia-smi` and the libraries; None without them."""
    return _version(machine, Part.USERLAND)


def fabric_manager(machine: Machine) -> str | None:
    """The version of the fabric manager's package."""
    return _version(machine, Part.FABRIC_MANAGER)


def _version(machine: Machine, part: Part) -> str | None:
    return next((p.driver for p in packages(machine) if p.part is part), None)


def loaded(machine: Machine) -> Module | None:
    known: dict[str, Any] | None = machine.state.get("nvidia")
    return Module(**known) if known else None


def refusal(machine: Machine, faults: Faults, *, nouveau: bool) -> str | None:
    """Why the kernel does not take the module; None if it does. `nouveau`: whether it has the GPUs."""
    there = module(machine)
    if there is None:
        return "Module nvidia not found in directory /lib/modules"
    if not there.is_signed and faults.first(SecureBoot):
        return "could not insert 'nvidia': Key was rejected by service"
    if nouveau or not serves(machine, there):
        return "could not insert 'nvidia': No such device"
    return None


def serves(machine: Machine, runs: Module) -> bool:
    """Whether a driver knows the machine's GPUs."""
    if not any(gpu.device in _VOLTA for gpu in machine.board.gpus.values()):
        return True
    return not runs.is_open and int(runs.version.partition(".")[0]) <= _LAST_OF_VOLTA


def took_over(machine: Machine) -> None:
    there = module(machine)
    if there is None:
        raise ValueError("only a module that is there is loaded")
    machine.state["nvidia"] = {
        "version": there.version,
        "is_open": there.is_open,
        "is_signed": there.is_signed,
    }
    folder = machine.path(f"{PROC}/nvidia")
    folder.mkdir(parents=True, exist_ok=True)
    kind = "Open Kernel Module for x86_64" if there.is_open else "x86_64 Kernel Module"
    (folder / "version").write_text(
        f"NVRM version: NVIDIA UNIX {kind}  {there.version}  Release Build\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
    )
    for number in range(len(machine.board.gpus)):
        machine.path(f"/dev/nvidia{number}").touch()


def gone(machine: Machine) -> None:
    """The module is not in the kernel any more."""
    machine.state.pop("nvidia", None)
    shutil.rmtree(machine.path(f"{PROC}/nvidia"), ignore_errors=True)
    for number in range(len(machine.board.gpus)):
        machine.path(f"/dev/nvidia{number}").unlink(missing_ok=True)


def fabric_problem(machine: Machine) -> str | None:
    """Why the fabric manager does not start; None if it does."""
    runs, wanted = loaded(machine), fabric_manager(machine)
    if runs is None:
        return "failed to initialize NVML: Driver Not Loaded"
    if runs.version != wanted:
        return (
            f"fabric manager NVIDIA GPU driver interface version {wanted} don't match with driver version "
            f"{runs.version}. Please update with matching NVIDIA driver package."
        )
    return None


def fabric_is_up(machine: Machine) -> bool:
    """Whether GPUs may start: there are no switches, or their fabric manager runs."""
    if not machine.board.has_switches:
        return True
    entry = machine.state.get("units", {}).get(FABRIC_MANAGER, {})
    return bool(entry.get("active") == "active")


def fabric_holds(machine: Machine) -> bool:
    """Whether the fabric manager keeps the module in the kernel."""
    return machine.board.has_switches and fabric_is_up(machine)


def gpu_uuid(name: str, module: int, generation: int = 0) -> str:
    """The UUID of one GPU. `generation`: how often the machine was made anew with other GPUs."""
    place = f"{name}/{module}" + (f"/{generation}" if generation else "")
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, place)}"


def on_the_bus(machine: Machine, faults: Faults) -> dict[int, str]:
    """UUID by module number of all GPUs that the bus shows."""
    replaced = faults.first(GpusReplaced)
    generation = replaced.generation if replaced else 0
    return {
        module: gpu_uuid(machine.name, module, generation)
        for module in sorted(machine.board.gpus)
        if faults.of_gpu(GpuFellOffTheBus, module) is None
    }


def uuids_served(machine: Machine, faults: Faults) -> tuple[str, ...]:
    """UUIDs of the GPUs that the driver serves, in the order of their index."""
    runs = loaded(machine)
    if runs is None or not serves(machine, runs):
        return ()
    return tuple(on_the_bus(machine, faults).values())
