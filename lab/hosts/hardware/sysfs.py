"""Writes the fake `/sys` and `/dev/vfio` of a host: what a board's PCI functions look like there.

Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci` (devices), `sysfs-kernel-iommu_groups`,
`Documentation/ABI/stable/sysfs-devices-node`, `sysfs-firmware-acpi` (tables) and
`Documentation/filesystems/proc.rst` (cpuinfo, meminfo).
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.hosts.hardware.board import Board, PciDevice

_BAR_BASE = 0x20_0000_0000
_BAR_STRIDE = 0x40_0000_0000
_MEMORY_64_PREFETCH = 0x14220C
_VFIO_MAJOR, _VFIO_CONTROL = 243, (10, 196)
_KVM = (10, 232)

KERNEL = "6.14.0-37-generic"
"""Release of the kernel that hosts run."""
CPU_FLAGS = ("fpu", "vme", "sse4_2", "aes", "pdpe1gb", "rdtscp", "lm", "vmx", "ept", "vpid")
# Firmware and kernel take theirs before MemTotal is counted; the structures of pages alone are 1.6 %.
_COUNTED = 0.983
_KIB_IN_GIB = 2**20


def write(root: Path, board: Board, *, device_nodes: bool) -> None:
    """Write the whole tree below `root`.

    `device_nodes`: make real character devices in /dev/vfio (needs root; the host's file system
    is mounted so that none can be opened), otherwise plain files stand for them.
    """
    write_line(root / "sys/firmware/dmi/entries/.keep", "")
    write_line(
        root / "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc"
    )
    write_line(root / "sys/class/dmi/id/product_name", board.product)
    write_line(root / "sys/class/dmi/id/sys_vendor", board.vendor)
    for module in ("vfio", "vfio_pci", "vfio_iommu_type1"):
        write_line(root / f"sys/module/{module}/initstate", "live")
    write_line(root / "sys/module/vfio_pci/parameters/disable_idle_d3", "Y")
    for driver in ("vfio-pci", "pcieport"):
        folder = root / "sys/bus/pci/drivers" / driver
        for name in ("bind", "unbind", "new_id", "remove_id"):
            write_line(folder / name, "", mode=0o200)
    for index, device in enumerate(board.devices):
        _write_device(root, device, index)
    write_line(root / "sys/firmware/acpi/tables/DMAR", "")
    share = board.memory_gib // board.numa_nodes
    for number in range(board.numa_nodes):
        folder = root / f"sys/devices/system/node/node{number}"
        write_line(folder / "meminfo", node_memory_info(number, share).rstrip("\n"))
    _make_node(root / "dev/kvm", _KVM, 0o660, device_nodes=device_nodes)
    bound = {device.iommu_group for device in board.devices if device.driver == "vfio-pci"}
    minors = {group: minor for minor, group in enumerate(sorted(bound))}
    make_vfio_nodes(root / "dev/vfio", minors, device_nodes=device_nodes)


def proc_files(board: Board) -> Mapping[str, str]:
    """What the host's /proc says instead of the machine's: content by name."""
    return {
        "cpuinfo": cpu_info(CPU_FLAGS),
        "meminfo": memory_info(board.memory_gib),
        "osrelease": f"{KERNEL}\n",
        # Empty on a machine without NVIDIA's driver, like the kernel's own folder.
        "driver/.keep": "",
    }


def cpu_info(flags: Iterable[str]) -> str:
    """/proc/cpuinfo; one processor of each socket stands for all."""
    return "".join(
        f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8480+\n"
        f"physical id\t: {number}\nflags\t\t: {' '.join(flags)}\n"
        "address sizes\t: 46 bits physical, 57 bits virtual\n\n"
        for number in range(2)
    )


def memory_info(gib: int) -> str:
    """/proc/meminfo of a machine with so much memory built in."""
    total = int(gib * _KIB_IN_GIB * _COUNTED)
    return (
        f"MemTotal:       {total} kB\nMemFree:        {total - 9_000_000} kB\n"
        f"MemAvailable:   {total - 8_000_000} kB\n"
    )


def node_memory_info(number: int, gib: int) -> str:
    """`meminfo` of a NUMA node in sysfs."""
    total = int(gib * _KIB_IN_GIB * _COUNTED)
    return f"Node {number} MemTotal:       {total} kB\nNode {number} MemFree:        {total} kB\n"


def _write_device(root: Path, device: PciDevice, index: int) -> None:
    bus = f"pci{device.address[:7]}"
    folder = root / "sys/devices" / bus / device.address
    files = {
        "vendor": f"0x{device.vendor}",
        "device": f"0x{device.device}",
        "class": f"0x{device.class_code}",
        "revision": f"0x{device.revision}",
        "numa_node": str(device.numa_node),
        "enable": "0" if device.driver == "vfio-pci" else "1",
        "driver_override": "vfio-pci" if device.driver == "vfio-pci" else "(null)",
        "resource": _resource(device, index),
    }
    for name, content in files.items():
        write_line(folder / name, content)
    if device.vendor == "10de":
        write_line(folder / "reset", "", mode=0o200)
    (folder / "config").write_bytes(_config_space(device))
    link(root / "sys/bus/pci/devices" / device.address, folder)
    link(folder / "subsystem", root / "sys/bus/pci")
    if device.driver is not None:
        driver = root / "sys/bus/pci/drivers" / device.driver
        link(folder / "driver", driver)
        link(driver / device.address, folder)
    group = root / "sys/kernel/iommu_groups" / str(device.iommu_group)
    write_line(group / "type", "DMA-FQ")
    link(group / "devices" / device.address, folder)
    link(folder / "iommu_group", group)


def _resource(device: PciDevice, index: int) -> str:
    """The 13 lines of a device's `resource` file: start, end, flags of each region."""
    sizes = dict(device.bars)
    lines: list[str] = []
    start = _BAR_BASE + index * _BAR_STRIDE
    for bar in range(13):
        size = sizes.get(bar)
        if size is None:
            lines.append("0x0000000000000000 0x0000000000000000 0x0000000000000000")
            continue
        start = -(-start // size) * size
        lines.append(f"0x{start:016x} 0x{start + size - 1:016x} 0x{_MEMORY_64_PREFETCH:016x}")
        start += size
    return "\n".join(lines)


def _config_space(device: PciDevice) -> bytes:
    space = bytearray(256)
    for offset, value in ((0, device.vendor), (2, device.device)):
        space[offset : offset + 2] = int(value, 16).to_bytes(2, "little")
    space[8] = int(device.revision, 16)
    space[9:12] = int(device.class_code, 16).to_bytes(3, "little")
    # 7f is what a device that fell off the bus answers, so an ordinary header has to be here.
    space[14] = 1 if device.is_bridge else 0
    for offset, value in ((44, device.subsystem[0]), (46, device.subsystem[1])):
        space[offset : offset + 2] = int(value, 16).to_bytes(2, "little")
    return bytes(space)


def make_vfio_nodes(folder: Path, minors: Mapping[int, int], *, device_nodes: bool) -> None:
    """Have a node for each of these IOMMU groups and no other; kmod makes the control node at boot."""
    nodes = {"vfio": _VFIO_CONTROL}
    nodes |= {str(group): (_VFIO_MAJOR, minor) for group, minor in minors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not path.is_dir() and path.name not in nodes:
            path.unlink()
    for name, number in nodes.items():
        mode = 0o666 if name == "vfio" else 0o600
        _make_node(folder / name, number, mode, device_nodes=device_nodes)


def _make_node(path: Path, number: tuple[int, int], mode: int, *, device_nodes: bool) -> None:
    """Real character devices where they can be made; otherwise plain files stand for them."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if device_nodes:
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(*number))
    else:
        path.touch()
    path.chmod(mode)


def write_line(path: Path, content: str, mode: int = 0o644) -> None:
    """A file with this line, left alone where it has it already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and content and path.read_text() == f"{content}\n":
        return
    path.write_text(f"{content}\n" if content else "")
    path.chmod(mode)


def link(path: Path, target: Path) -> None:
    """A relative link: an absolute one would lead out of the host when read from outside."""
    if not path.is_symlink():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))
