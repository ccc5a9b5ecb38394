"""Huge pages of 1 GiB on a simulated host: what the kernel reserves for each NUMA node.

Source: the kernel's `Documentation/admin-guide/mm/hugetlbpage.rst`.
"""

from pathlib import Path

from lab.hosts.hardware import command_line
from lab.hosts.hardware.sysfs import write_line
from lab.hosts.machine import Machine

_MEMORY_GIB_PER_NODE = 1024
_PAGES_THE_KERNEL_KEEPS = 4
_SIZE = "hugepages-1048576kB"


def folders(machine: Machine) -> list[tuple[int, Path]]:
    """NUMA nodes, and where each says how many pages it has."""
    nodes = sorted({device.numa_node for device in machine.board.devices})
    base = "/sys/devices/system/node"
    return [(n, machine.path(f"{base}/node{n}/hugepages/{_SIZE}")) for n in nodes]


def reserve(machine: Machine, line: str) -> None:
    """Reserve what the command line asks for, as far as the memory goes."""
    found = folders(machine)
    pages = command_line.huge_pages_1g(line, [number for number, _ in found])
    for number, folder in found:
        write_line(folder / "surplus_hugepages", str(0))
        set_pages(machine, folder, pages.get(number, 0))


def set_pages(machine: Machine, folder: Path, count: int) -> None:
    """Give a node so many pages, as somebody wrote into its nr_hugepages."""
    given = min(count, _MEMORY_GIB_PER_NODE - _PAGES_THE_KERNEL_KEEPS)
    for name in ("nr_hugepages", "free_hugepages"):
        write_line(folder / name, str(given))
    everywhere = machine.path(f"/sys/kernel/mm/hugepages/{_SIZE}")
    files = [f / "nr_hugepages" for _, f in folders(machine)]
    total = sum(int(file.read_text()) for file in files if file.exists())
    for name in ("nr_hugepages", "free_hugepages"):
        write_line(everywhere / name, str(total))
