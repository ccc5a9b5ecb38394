"""What has to be done about the driver on a host, one round at a time, and what drifted. Pure.

A round ends with a restart at the latest; the next one looks again. So a run that was killed anywhere goes on
with what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuclusters.domain.gpu_driver import (
    NOUVEAU,
    NOUVEAU_FILE,
    UPGRADES,
    UPGRADES_FILE,
    GpuDriverInputs,
    LiveDriver,
    Modules,
)
from gpuclusters.domain.gpu_driver_packages import Packages, kernels
from gpuclusters.domain.host_file import sha256_of


@dataclass(frozen=True, slots=True)
class Plan:
    """One round, in this order."""

    write: Mapping[str, str] = field(default_factory=dict)
    """Files by path."""
    initramfs: bool = False
    install: tuple[str, ...] = ()
    """Packages that are missing."""
    hold: tuple[str, ...] = ()
    """Packages that would be upgraded by themselves."""
    reboot: str = ""
    """Why; empty: no restart."""
    load: bool = False
    """Whether the module can be loaded without a restart."""
    fabric: bool = False
    """Whether the fabric manager must be enabled or started anew."""
    replaces: bool = False
    """Whether packages of a driver that runs are replaced."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        steps = (self.write, self.initramfs, self.install, self.hold, self.reboot)
        return not (any(steps) or self.load or self.fabric)

    @property
    def disturbs(self) -> bool:
        """Whether programs on the GPUs would not survive it."""
        return bool(self.reboot) or self.replaces


def contents(live: LiveDriver) -> dict[str, str]:
    """Our files on the host, by path."""
    files = {NOUVEAU_FILE: NOUVEAU}
    if live.family == "debian":
        files[UPGRADES_FILE] = UPGRADES
    return files


def initramfs_digest() -> str:
    """Of what has to be in the initramfs."""
    return sha256_of(NOUVEAU.encode())


def plan(inputs: GpuDriverInputs, live: LiveDriver, packages: Packages | None) -> Plan:
    """What is left; `packages` is None where the host gets no driver."""
    write = {
        path: text
        for path, text in contents(live).items()
        if live.digests.get(path) != sha256_of(text.encode())
    }
    initramfs = bool(NOUVEAU_FILE in write) or live.initramfs != initramfs_digest()
    if packages is None:
        hold = tuple(sorted({*kernels(live)} - live.held))
        return Plan(write, initramfs, hold=hold, reboot=_nouveau(live) or _waits(live))
    if live.reboot_required:
        # Modules are made for one kernel: the one that runs has to be the one that comes up next time too.
        return Plan(write, initramfs, reboot=_waits(live))
    missing = packages.missing(live)
    if packages.stream and live.stream != packages.stream:
        missing = packages.names
    wanted = set(packages.held) & {*live.packages, *packages.names}
    hold = tuple(sorted((wanted | {*kernels(live)}) - live.held))
    reboot = _nouveau(live) or _other_module(inputs, live)
    return Plan(
        write=write,
        initramfs=initramfs,
        install=missing,
        hold=hold,
        reboot=reboot,
        load=not live.loaded and not reboot,
        fabric=inputs.nvswitch and not reboot and not _fabric_is_up(packages, live, missing),
        replaces=bool(missing) and bool(live.loaded),
    )


def _fabric_is_up(packages: Packages, live: LiveDriver, missing: tuple[str, ...]) -> bool:
    same = packages.fabric_manager not in missing
    return same and live.fabric_enabled and live.fabric_manager == "active"


def _nouveau(live: LiveDriver) -> str:
    return "nouveau has its GPUs" if live.nouveau else ""


def _waits(live: LiveDriver) -> str:
    return (
        "the system waits for a restart, most often for a newer kernel"
        if live.reboot_required
        else ""
    )


def _other_module(inputs: GpuDriverInputs, live: LiveDriver) -> str:
    if not live.loaded:
        return ""
    if live.loaded != inputs.version:
        return f"the kernel runs driver {live.loaded}, and {inputs.version} is to be installed"
    if live.loaded_open is not (inputs.modules is Modules.OPEN):
        kind = "open" if live.loaded_open else "proprietary"
        return f"the kernel runs {kind} modules, and {inputs.modules} ones are to be installed"
    return ""


def drift(inputs: GpuDriverInputs, live: LiveDriver, packages: Packages | None) -> list[str]:
    """In words, how a host differs from what was made of it."""
    left = plan(inputs, live, packages)
    found = [f"{path} differs" for path in sorted(left.write)]
    if live.nouveau:
        found.append("nouveau is loaded")
    if len(live.gpus) != inputs.gpus:
        found.append(f"{len(live.gpus)} of {inputs.gpus} GPUs are on the bus")
    if left.hold:
        found.append(f"packages are not held: {', '.join(left.hold)}")
    if packages is None:
        if live.module:
            found.append(f"driver {live.module} is installed on the host")
        return found
    if left.install:
        found.append(f"packages are not there in their version: {', '.join(left.install)}")
    if live.loaded != inputs.version:
        found.append(f"the kernel runs {f'driver {live.loaded}' if live.loaded else 'no driver'}")
    elif live.loaded_open is not (inputs.modules is Modules.OPEN):
        found.append(_other_module(inputs, live))
    if live.module and live.module != live.loaded:
        found.append(
            f"module {live.module} is on the disk and {live.loaded or 'none'} in the kernel"
        )
    if inputs.nvswitch and live.fabric_manager != "active":
        found.append(f"the fabric manager is {live.fabric_manager or 'not there'}")
    if live.loaded and (live.smi != 0 or len(live.shown) != inputs.gpus):
        found.append(f"nvidia-smi shows {len(live.shown)} of {inputs.gpus} GPUs")
    return found
