"""A machine that is made with NVIDIA's driver: installed, nouveau kept out, the fabric manager up."""

from __future__ import annotations

from lab.hosts.hardware import initramfs
from lab.hosts.machine import Machine
from lab.hosts.nvidia import driver, driver_packages
from lab.hosts.nvidia.driver_packages import DEFAULT_BRANCH, RELEASES, Part
from lab.hosts.systemd import units

_BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"


def install(machine: Machine) -> None:
    """The newest driver of the branch that all simulated GPUs know, as somebody installed it by hand."""
    wanted = RELEASES[DEFAULT_BRANCH][0]
    is_open = driver.serves(machine, driver.Module(wanted, is_open=True, is_signed=True))
    there = [p for p in driver_packages.packages(machine.system) if p.driver == wanted]
    modules = [p for p in there if p.part in (Part.PREBUILT, Part.DKMS) and p.is_open is is_open]
    # Prebuilt modules are signed; they come first where there are any.
    modules.sort(key=lambda package: package.part is not Part.PREBUILT)
    chosen = modules[:1] + [p for p in there if p.part is Part.USERLAND]
    if machine.board.has_switches:
        chosen += [p for p in there if p.part is Part.FABRIC_MANAGER]
    machine.state.setdefault("packages", {}).update({p.name: p.version for p in chosen})
    machine.path("/etc/modprobe.d").mkdir(parents=True, exist_ok=True)
    machine.path(_BLACKLIST).write_text("blacklist nouveau\noptions nouveau modeset=0\n")
    machine.state["initramfs"] = initramfs.read_blacklist(machine)


def booted(machine: Machine) -> None:
    """Its fabric manager runs where there is one."""
    if driver.fabric_manager(machine) is not None and driver.loaded(machine) is not None:
        units.state(machine, driver.FABRIC_MANAGER).update(active="active", enabled=True)
