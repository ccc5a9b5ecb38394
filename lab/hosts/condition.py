"""What a simulated machine is like when it is made: `prepared`, or `bare`.

Prepared means exactly as our own preparation leaves a machine: the same files with the same content.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclusters.boot import command_line
from gpuclusters.boot import model as host_boot
from gpuclusters.vfio import decide as vfio
from gpuclusters.vfio.model import NVSWITCH_PCI_ID, VfioFunction, board_functions
from lab.hosts import driver_condition, memory_pages
from lab.hosts.board import Board
from lab.hosts.kernel import COMMAND_LINE, VFIO
from lab.hosts.standins import boot_loader, initramfs, units

if TYPE_CHECKING:
    from lab.hosts.host import Host

OTHERS = "console=tty0 console=ttyS0,115200n8 crashkernel=512M"
"""What the machine's owner has on the command line already."""
_BY_HAND = "quiet"
_UNIT_FILE = Path(__file__).resolve().parents[2] / "scripts/host" / vfio.UNIT
_SCRIPT_FILE = Path(__file__).resolve().parents[2] / "scripts/host/vfio_bind.sh"
_OF_A_PREPARED_MACHINE = (
    "etc/modprobe.d/vfio.conf",
    "usr/share/nvidia/nvswitch/fabricmanager.cfg",
)


def make(host: Host) -> None:
    """Write what tells one condition from the other, and start the kernel."""
    machine, root = host.machine, host.folder.root
    rocky = host.identity["system"] != "ubuntu"
    if rocky:
        _make_rpm_system(root, host.identity["system"])
    else:
        (root / "etc/default/grub.d").mkdir(parents=True, exist_ok=True)
    prepared = machine.condition == "prepared" and machine.board.passes_gpus_on
    arguments = host_boot.kernel_arguments(cpu=host_boot.Cpu.INTEL, huge_pages_1g_by_numa_node={})
    ours = " ".join(command_line.additions(OTHERS, arguments)) if prepared else ""
    line = " ".join(f"{boot_loader.FIXED} {OTHERS} {ours} {_BY_HAND}".split())
    _write(
        root / "etc/default/grub",
        "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\n"
        f'GRUB_CMDLINE_LINUX_DEFAULT="{_BY_HAND}"\nGRUB_CMDLINE_LINUX="{OTHERS}"\n',
    )
    if prepared:
        _prepare(host, arguments, rocky=rocky)
    if rocky:
        _write(root / boot_loader.ENTRY[1:], boot_loader.render_entry(line))
    else:
        _write(root / boot_loader.GRUB_CONFIG[1:], boot_loader.render(line))
    running = f"BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic {line}"
    if not prepared:
        for path in _OF_A_PREPARED_MACHINE:
            (root / path).unlink(missing_ok=True)
        if machine.condition == "prepared" and machine.board.runs_the_driver:
            driver_condition.install(machine)
        host.kernel.boot(running, initramfs.blacklisted(machine))
        driver_condition.booted(machine)
    else:
        machine.path(COMMAND_LINE).write_text(f"{running}\n")
        memory_pages.reserve(machine, running)
    machine.save()


def functions(board: Board) -> tuple[VfioFunction, ...]:
    """What belongs to vfio-pci on this board."""
    gpus = board.gpus
    claimed = [d for d in board.devices if d.driver == VFIO and d.module is None]
    switches = [d for d in claimed if f"{d.vendor}:{d.device}" == NVSWITCH_PCI_ID]
    extra = [d for d in claimed if d not in switches]
    first = next(iter(gpus.values()))
    return board_functions(
        gpus={module: device.address for module, device in gpus.items()},
        gpu_pci_id=f"{first.vendor}:{first.device}",
        switches=[d.address for d in switches],
        extra_functions=[d.address for d in extra],
        extra_pci_id=f"{extra[0].vendor}:{extra[0].device}" if extra else None,
    )


def _prepare(host: Host, arguments: tuple[str, ...], *, rocky: bool) -> None:
    machine, root = host.machine, host.folder.root
    ours = command_line.additions(OTHERS, arguments)
    files = dict(host_boot.host_files())
    if rocky:
        files[host_boot.ARGUMENTS_FILE] = host_boot.render_arguments_file(ours)
    else:
        files[host_boot.GRUB_FILE] = host_boot.render_grub_file(ours)
    files[host_boot.INITRAMFS_STAMP] = host_boot.initramfs_digest(files) + "\n"
    files[vfio.LIST_PATH] = vfio.render_list(functions(machine.board))
    files[vfio.SCRIPT_PATH] = _SCRIPT_FILE.read_text()
    files[f"{units.UNIT_DIRECTORY}/{vfio.UNIT}"] = _UNIT_FILE.read_text()
    for path, content in files.items():
        _write(root / path[1:], content)
    (root / vfio.SCRIPT_PATH[1:]).chmod(0o755)
    machine.state["initramfs"] = initramfs.read_blacklist(machine)
    units.state(machine, vfio.UNIT).update(active="active", enabled=True, since=time.time())


def _make_rpm_system(root: Path, system: str) -> None:
    _write(root / "etc/os-release", _RELEASE[system])
    shutil.rmtree(root / "etc/default/grub.d", ignore_errors=True)
    shutil.rmtree(root / "etc/apt", ignore_errors=True)


_RELEASE = {
    "rocky": (
        'NAME="Rocky Linux"\nVERSION="9.6 (Blue Onyx)"\nID="rocky"\n'
        'ID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'
    ),
    "sles": (
        'NAME="SLES"\nVERSION="15-SP7"\nVERSION_ID="15.7"\nID="sles"\nID_LIKE="suse"\n'
        'PRETTY_NAME="SUSE Linux Enterprise Server 15 SP7"\n'
    ),
}


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o644)
