"""What a simulated machine is like when it is made: `prepared`, or `bare`.

A prepared machine has the files in `prepared/`: recorded on a machine that this program had prepared, so
that a change of what the program writes is seen.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.hosts.hardware import boot_programs, memory_pages
from lab.hosts.hardware.kernel import COMMAND_LINE, Kernel
from lab.hosts.machine import FILES, PREPARED, Machine
from lab.hosts.nvidia import driver
from lab.hosts.packages.catalogue import DEFAULT_BRANCH, RELEASES, Part, driver_packages
from lab.hosts.systemd import units

OTHERS = "console=tty0 console=ttyS0,115200n8 crashkernel=512M"
"""What the machine's owner has on the command line already."""
_BY_HAND = "quiet"
_BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"
_SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/vfio/scripts"
_ARGUMENTS_FILE = "etc/gpu-clusters/kernel-arguments"
_GRUB_FILE = "etc/default/grub.d/90-gpu-clusters.cfg"
_LIST_FILE = "etc/gpu-clusters/vfio-functions"
_UNIT = "gpu-clusters-vfio.service"
_PROGRAM = "usr/local/sbin/gpu-clusters-vfio"
_OF_A_PREPARED_MACHINE = (
    "etc/modprobe.d/vfio.conf",
    "usr/share/nvidia/nvswitch/fabricmanager.cfg",
)


def make(machine: Machine, kernel: Kernel, identity: Mapping[str, Any]) -> None:
    """Write what tells one condition from the other, and start the kernel."""
    root = machine.folder.root
    rocky = identity["system"] != "ubuntu"
    if rocky:
        _make_rpm_system(root, identity["system"])
    else:
        (root / "etc/default/grub.d").mkdir(parents=True, exist_ok=True)
    prepared = machine.condition == "prepared" and machine.board.passes_gpus_on
    ours = _prepared_arguments() if prepared else ""
    line = " ".join(f"{boot_programs.FIXED} {OTHERS} {ours} {_BY_HAND}".split())
    _write(
        root / "etc/default/grub",
        "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\n"
        f'GRUB_CMDLINE_LINUX_DEFAULT="{_BY_HAND}"\nGRUB_CMDLINE_LINUX="{OTHERS}"\n',
    )
    if prepared:
        _prepare(machine, rocky=rocky)
    if rocky:
        _write(root / boot_programs.ENTRY[1:], boot_programs.render_entry(line))
    else:
        _write(root / boot_programs.GRUB_CONFIG[1:], boot_programs.render(line))
    running = f"BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic {line}"
    if not prepared:
        for path in _OF_A_PREPARED_MACHINE:
            (root / path).unlink(missing_ok=True)
        if machine.condition == "prepared" and machine.board.runs_the_driver:
            _install_driver(machine)
        kernel.boot(running, boot_programs.blacklisted(machine))
        _driver_booted(machine)
    else:
        machine.path(COMMAND_LINE).write_text(f"{running}\n")
        memory_pages.reserve(machine, running)
    machine.save()


def _install_driver(machine: Machine) -> None:
    """The newest driver of the branch that all simulated GPUs know, as somebody installed it by hand."""
    wanted = RELEASES[DEFAULT_BRANCH][0]
    is_open = driver.serves(machine, driver.Module(wanted, is_open=True, is_signed=True))
    there = [p for p in driver_packages(machine.system) if p.driver == wanted]
    modules = [p for p in there if p.part in (Part.PREBUILT, Part.DKMS) and p.is_open is is_open]
    # Prebuilt modules are signed; they come first where there are any.
    modules.sort(key=lambda package: package.part is not Part.PREBUILT)
    chosen = modules[:1] + [p for p in there if p.part is Part.USERLAND]
    if machine.board.has_switches:
        chosen += [p for p in there if p.part is Part.FABRIC_MANAGER]
    machine.packages.update({p.name: p.version for p in chosen})
    machine.write(_BLACKLIST, "blacklist nouveau\noptions nouveau modeset=0\n")
    machine.state["initramfs"] = boot_programs.read_blacklist(machine)


def _driver_booted(machine: Machine) -> None:
    """Its fabric manager runs where there is one."""
    if driver.fabric_manager(machine) is not None and driver.loaded(machine) is not None:
        units.state(machine, driver.FABRIC_MANAGER).update(active="active", enabled=True)


def _prepared_arguments() -> str:
    """What preparation added to the kernel's command line."""
    lines = (PREPARED / "root" / _ARGUMENTS_FILE).read_text().splitlines()
    return " ".join(line for line in lines if not line.startswith("#"))


def _prepare(machine: Machine, *, rocky: bool) -> None:
    root = machine.folder.root
    other_boot_loader = _GRUB_FILE if rocky else _ARGUMENTS_FILE
    for file in (PREPARED / "root").rglob("*"):
        path = str(file.relative_to(PREPARED / "root"))
        if file.is_file() and path != other_boot_loader:
            _write(root / path, file.read_text())
    platform = PREPARED / machine.board.platform
    _write(root / _LIST_FILE, (platform / "vfio-functions").read_text())
    parts = (_SCRIPTS / f"vfio_{name}.sh" for name in ("users", "bind"))
    _write(root / _PROGRAM, "".join(part.read_text() for part in parts))
    (root / _PROGRAM).chmod(0o755)
    _write(root / f"{units.UNIT_DIRECTORY}/{_UNIT}"[1:], (_SCRIPTS / _UNIT).read_text())
    machine.state["initramfs"] = boot_programs.read_blacklist(machine)
    units.state(machine, _UNIT).update(active="active", enabled=True, since=time.time())


def _make_rpm_system(root: Path, system: str) -> None:
    _write(root / "etc/os-release", (FILES / f"system/os-release.{system}").read_text())
    shutil.rmtree(root / "etc/default/grub.d", ignore_errors=True)
    shutil.rmtree(root / "etc/apt", ignore_errors=True)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o644)
