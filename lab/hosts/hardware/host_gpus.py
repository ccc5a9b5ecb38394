"""What a simulated machine's GPUs are to a cluster: which, how many, served by which driver, how divided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.files import read_json
from lab.hosts.faults import GpuFellOffTheBus
from lab.hosts.faults import read as faults_of
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.hardware import gpus, mig
from lab.hosts.hardware.board import board
from lab.hosts.hardware.kernel import NOUVEAU
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.nvidia import driver

_ENABLED = "enabled"


@dataclass(frozen=True, slots=True)
class GpuState:
    """The GPUs of one machine at this moment."""

    product: str
    """As `nvidia-smi` says it; empty where there are no GPUs."""
    count: int
    """GPUs on the bus."""
    usable: int
    """Those that a program could use now: 0 without driver, or while NVSwitches wait for their manager."""
    driver_version: str | None
    """The driver that the kernel runs; None without."""
    installed_version: str | None
    """The driver that is installed; another than the one that runs until the next boot."""
    mig: Mapping[int, tuple[str, ...]] | None
    """Profiles of the MIG instances by index of the GPU, for those in MIG mode; None without MIG."""
    nouveau: bool
    """Whether nouveau is loaded."""


def gpu_state(folder: Path, host: str) -> GpuState:
    """The GPUs of a machine.

    Args:
        folder: the folder of all hosts.
        host: name of the machine.

    Raises:
        HostsError: there is no such machine.
    """
    there = HostsFolder(folder.resolve()).existing(host)
    platform = board(read_json(there.identity)["platform"])
    machine = Machine(there, platform)
    faults = faults_of(there)
    count = len(platform.gpus) - sum(
        faults.of_gpu(GpuFellOffTheBus, module) is not None for module in platform.gpus
    )
    runs = driver.loaded(machine)
    nouveau = machine.path(f"/sys/module/{NOUVEAU}/initstate").exists()
    serves = runs is not None and driver.serves(machine, runs) and driver.fabric_is_up(machine)
    matches = runs is not None and runs.version == driver.userland(machine)
    return GpuState(
        product=platform.gpu_name if platform.gpus else "",
        count=count,
        usable=count if serves and matches else 0,
        driver_version=runs.version if runs else None,
        installed_version=driver.userland(machine),
        mig=_instances(there, platform.gpus) if mig.profiles(platform) else None,
        nouveau=nouveau,
    )


def set_mig(folder: Path, host: str, layout: Mapping[int, Sequence[str]]) -> None:
    """Divide GPUs by index; an index with no profiles leaves MIG mode on without instances.

    GPUs that are not named leave MIG mode.

    Raises:
        HostsError: there is no such machine or GPU, or the profiles do not fit.
    """
    there = HostsFolder(folder.resolve()).existing(host)
    platform = board(read_json(there.identity)["platform"])
    for index, instances in layout.items():
        if index not in range(len(platform.gpus)):
            raise HostsError(f"{host} has no GPU {index}; it has {len(platform.gpus)}, from 0 on")
        wrong = mig.problem(platform, instances)
        if wrong is not None:
            raise HostsError(f"{host}: GPU {index}: {' '.join(instances)}: {wrong}")
    for index, module in enumerate(sorted(platform.gpus)):
        with gpus.change(there, module) as gpu:
            gpu.knobs = {**gpu.knobs, "mig": _ENABLED if index in layout else "disabled"}
            gpu.mig_instances = list(layout.get(index, ()))


def _instances(there: HostFolder, modules: Mapping[int, object]) -> dict[int, tuple[str, ...]]:
    known = gpus.read(there)
    return {
        index: tuple(known[module].mig_instances)
        for index, module in enumerate(sorted(modules))
        if module in known and known[module].knobs["mig"] == _ENABLED
    }
