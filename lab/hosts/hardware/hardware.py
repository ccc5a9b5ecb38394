"""Lets faults of a machine's hardware show in its files: sysfs, /proc, /dev.

Applied when faults are injected or cleared, and again after the machine has booted, because a boot finds
the hardware anew.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lab.hosts import faults as kinds
from lab.hosts.faults import Faults, GpuFellOffTheBus, ResetNotSupported
from lab.hosts.folder import HostFolder
from lab.hosts.hardware import sysfs
from lab.hosts.hardware.board import GIB, Board, PciDevice
from lab.hosts.patches import Patches

_PROC = "/usr/local/lib/lab-host/proc"
_DEVICES = "/sys/bus/pci/devices"
_GROUPS = "/sys/kernel/iommu_groups"
_DRIVERS = "/sys/bus/pci/drivers"
_FIRST = "/usr/local/sbin"
"""Where the shell looks first: what lies here is run instead of the program of that name."""
_QEMU = "qemu-system-x86_64"
_NOWHERE = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
_FLAGS = "0x000000000014220c"
_LARGE_BAR = 2
_MISSING_PATHS: Mapping[str, tuple[str, ...]] = {
    "ovmf": ("/usr/share/OVMF",),
    "kvm": ("/dev/kvm",),
}


def apply(host: HostFolder, board: Board, faults: Faults) -> None:
    """Make the host's files show these faults and no others."""
    patches = Patches(host)
    patches.undo()
    for module, gpu in board.gpus.items():
        if faults.of_gpu(GpuFellOffTheBus, module):
            _fall_off(patches, gpu)
        if faults.of_gpu(ResetNotSupported, module):
            patches.remove(f"{_DEVICES}/{gpu.address}/reset")
    for fault in faults:
        change = _CHANGES.get(type(fault))
        if change is not None:
            change(patches, board, fault)


def take_back(host: HostFolder) -> None:
    Patches(host).undo()


def _fall_off(patches: Patches, gpu: PciDevice) -> None:
    # Nobody answers a read, so that it returns ones (PCI); the kernel's own files keep what they had.
    patches.write(f"{_DEVICES}/{gpu.address}/config", b"\xff" * 256)


def _iommu_off(patches: Patches, board: Board, fault: kinds.IommuOff) -> None:
    if fault.where == "firmware":
        patches.remove("/sys/firmware/acpi/tables/DMAR")
    patches.remove(_GROUPS)
    for device in board.devices:
        patches.remove(f"{_DEVICES}/{device.address}/iommu_group")


def _share_group(patches: Patches, board: Board, fault: kinds.AcsMissing) -> None:
    one, other = (board.gpus[module] for module in fault.modules)
    group = f"{_GROUPS}/{one.iommu_group}"
    if not patches.path(group).is_dir():
        return  # without an IOMMU there are no groups
    folder = f"{_DEVICES}/{other.address}"
    patches.remove(f"{_GROUPS}/{other.iommu_group}")
    patches.link(f"{folder}/iommu_group", group)
    patches.link(f"{group}/devices/{other.address}", folder)


def _add_foreign(patches: Patches, board: Board, fault: kinds.ForeignDevice) -> None:
    gpu = board.gpus[fault.module]
    group = f"{_GROUPS}/{gpu.iommu_group}"
    address = gpu.address[:-1] + "1"
    folder = f"/sys/devices/pci{address[:7]}/{address}"
    for name, content in {
        "vendor": "0x15b3\n",
        "device": "0x1021\n",
        "class": "0x020000\n",
        "revision": "0x00\n",
        "numa_node": f"{gpu.numa_node}\n",
    }.items():
        patches.write(f"{folder}/{name}", content)
    patches.link(f"{_DEVICES}/{address}", folder)
    patches.link(f"{folder}/driver", f"{_DRIVERS}/{fault.driver}")
    patches.link(f"{_DRIVERS}/{fault.driver}/{address}", folder)
    if patches.path(group).is_dir():
        patches.link(f"{folder}/iommu_group", group)
        patches.link(f"{group}/devices/{address}", folder)


def _take_out(patches: Patches, board: Board, fault: kinds.GpuMissing) -> None:
    gpu = board.gpus[fault.module]
    patches.remove(f"{_DEVICES}/{gpu.address}")
    patches.remove(f"{_GROUPS}/{gpu.iommu_group}")
    patches.remove(f"{_DRIVERS}/vfio-pci/{gpu.address}")
    patches.remove(f"/dev/vfio/{gpu.iommu_group}")


def _replace(patches: Patches, board: Board, fault: kinds.OtherDevice) -> None:
    patches.write(f"{_DEVICES}/{board.gpus[fault.module].address}/device", f"0x{fault.device}\n")


def _misplace(patches: Patches, board: Board, fault: kinds.BarWrong) -> None:
    path = f"{_DEVICES}/{board.gpus[fault.module].address}/resource"
    lines = patches.path(path).read_text().splitlines()
    lines[_LARGE_BAR] = {
        "not-placed": _NOWHERE,
        "small": f"0x{0x40_0000_0000:016x} 0x{0x40_0000_0000 + 16 * GIB - 1:016x} {_FLAGS}",
        "below-4g": f"0x{0x8000_0000:016x} 0x{0x8000_0000 + 128 * GIB - 1:016x} {_FLAGS}",
    }[fault.how]
    patches.write(path, "\n".join(lines) + "\n")


def _bring_driver(patches: Patches, board: Board, fault: kinds.HostDriver) -> None:  # noqa: ARG001
    if fault.how == "loaded":
        listing = f"{_PROC}/modules"
        old = patches.path(listing).read_text()
        patches.write(listing, f"{fault.driver} 62976 0 - Live 0x0000000000000000\n{old}")
        patches.write(f"/sys/module/{fault.driver}/initstate", "live\n")


def _no_node(patches: Patches, board: Board, fault: kinds.VfioNodeMissing) -> None:
    patches.remove(f"/dev/vfio/{board.gpus[fault.module].iommu_group}")


def _unbind(patches: Patches, board: Board, fault: kinds.NotOnVfio) -> None:
    gpu = board.gpus[fault.module]
    patches.remove(f"{_DEVICES}/{gpu.address}/driver")
    patches.remove(f"{_DRIVERS}/vfio-pci/{gpu.address}")


def _other_flags(patches: Patches, board: Board, fault: kinds.Processor) -> None:  # noqa: ARG001
    flags = [flag for flag in sysfs.CPU_FLAGS if flag not in fault.without]
    patches.write(f"{_PROC}/cpuinfo", sysfs.cpu_info([*flags, *fault.having]))


def _less_memory(patches: Patches, board: Board, fault: kinds.MemoryLost) -> None:  # noqa: ARG001
    patches.write(f"{_PROC}/meminfo", sysfs.memory_info(fault.gib))


def _more_nodes(patches: Patches, board: Board, fault: kinds.NumaNodes) -> None:
    for number in range(board.numa_nodes, fault.count):
        patches.write(
            f"/sys/devices/system/node/node{number}/meminfo", sysfs.node_memory_info(number, 512)
        )


def _other_version(patches: Patches, board: Board, fault: kinds.OldVersion) -> None:  # noqa: ARG001
    if fault.program == "kernel":
        patches.write(f"{_PROC}/osrelease", f"{fault.version}\n")
    elif fault.program == "qemu":
        patches.script(
            f"{_FIRST}/{_QEMU}", f"#!/bin/sh\necho QEMU emulator version {fault.version}\n"
        )
    else:
        patches.script(f"{_FIRST}/virsh", f"#!/bin/sh\necho {fault.version}\n")


def _without(patches: Patches, board: Board, fault: kinds.ProgramMissing) -> None:  # noqa: ARG001
    for path in _MISSING_PATHS.get(fault.program, ()):
        patches.remove(path)
    name = {"qemu": _QEMU, "libvirt": "virsh"}.get(fault.program)
    if name is not None:
        patches.script(f"{_FIRST}/{name}", f"#!/bin/sh\necho {name}: not found >&2\nexit 127\n")


def _wrong_clock(patches: Patches, board: Board, fault: kinds.ClockSkewed) -> None:  # noqa: ARG001
    program = f'#!/bin/sh\nexec /usr/bin/date -d "{fault.seconds} seconds" "$@"\n'
    patches.script(f"{_FIRST}/date", program)


_CHANGES: Mapping[type[Any], Callable[[Patches, Board, Any], None]] = {
    kinds.IommuOff: _iommu_off,
    kinds.AcsMissing: _share_group,
    kinds.ForeignDevice: _add_foreign,
    kinds.GpuMissing: _take_out,
    kinds.OtherDevice: _replace,
    kinds.BarWrong: _misplace,
    kinds.HostDriver: _bring_driver,
    kinds.VfioNodeMissing: _no_node,
    kinds.NotOnVfio: _unbind,
    kinds.Processor: _other_flags,
    kinds.MemoryLost: _less_memory,
    kinds.NumaNodes: _more_nodes,
    kinds.OldVersion: _other_version,
    kinds.ProgramMissing: _without,
    kinds.ClockSkewed: _wrong_clock,
}
