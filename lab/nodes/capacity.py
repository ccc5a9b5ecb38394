"""A machine with other processors and memory than this one has, as the kubelet finds it in /proc and /sys.

The kubelet asks cadvisor (`machine/info.go`, `utils/sysinfo`), which counts threads below
/sys/devices/system/node, takes `MemTotal` of /proc/meminfo, and multiplies pages below
/sys/kernel/mm/hugepages. Containers have a /proc and /sys of their own and see what is really there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuclusters.domain.quantity import parse_quantity

PROCESSORS = "/sys/devices/system/cpu"
NUMA_NODES = "/sys/devices/system/node"
HUGE_PAGES = "/sys/kernel/mm/hugepages"
MEMORY_FILE = "/proc/meminfo"
PROCESSOR_FILE = "/proc/cpuinfo"

_HUGE = "hugepages-"
_KIB = 1024
_SMALL_MACHINE = 32
"""Below so many processors a server has one socket."""
_SIZES_KIB = (2048, 1024 * 1024)
"""Huge pages that the kernel has on this architecture, used or not."""
EVICTION_BYTES = 100 << 20
"""What the kubelet keeps free of memory; it is no part of what pods may have."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a machine has: processors, bytes of memory, and how many huge pages by their size in KiB."""

    processors: int
    memory: int
    huge_pages: Mapping[int, int]

    @property
    def sockets(self) -> int:
        """How many processors in the sense of what is bought; each is a NUMA node."""
        return 2 if self.processors >= _SMALL_MACHINE and self.processors % 4 == 0 else 1

    @property
    def threads(self) -> int:
        """How many a core has."""
        return 1 if self.processors % (2 * self.sockets) else 2

    @property
    def cores(self) -> int:
        """How many a socket has."""
        return self.processors // self.sockets // self.threads

    def socket(self, processor: int) -> int:
        """In which socket a processor is. Second threads come after all first ones, as the kernel counts."""
        return processor % (self.processors // self.threads) // self.cores

    def core(self, processor: int) -> int:
        """On which core of its socket it is."""
        return processor % self.cores


def hardware(capacity: Mapping[str, str]) -> Hardware | None:
    """The machine of a capacity as a `NodeSpec` says it; None where it is to have what this machine has.

    Raises:
        ValueError: it has no processors or no memory, or huge pages of a size that there is not.
    """
    if not capacity:
        return None
    missing = [name for name in ("cpu", "memory") if name not in capacity]
    if missing:
        raise ValueError(f"a capacity needs cpu and memory; {' and '.join(missing)} is not in it")
    pages = {}
    for name, quantity in capacity.items():
        if name.startswith(_HUGE):
            size = int(parse_quantity(name.removeprefix(_HUGE))) // _KIB
            if size not in _SIZES_KIB:
                raise ValueError(f"there are no huge pages of the size in {name}; use 2Mi or 1Gi")
            pages[size] = int(parse_quantity(quantity)) // _KIB // size
    memory = int(parse_quantity(capacity["memory"]))
    return Hardware(int(parse_quantity(capacity["cpu"])), memory, pages)


def files(machine: Hardware) -> dict[str, str]:
    """Content by path of the file on the node."""
    return {
        MEMORY_FILE: _memory_file(machine),
        PROCESSOR_FILE: _processor_file(machine),
        **_processors(machine),
        **_numa_nodes(machine),
        **_pages(HUGE_PAGES, machine, 1),
    }


def covered() -> tuple[str, ...]:
    """Files and folders of the machine that these files take the place of."""
    return (MEMORY_FILE, PROCESSOR_FILE, PROCESSORS, NUMA_NODES, HUGE_PAGES)


def kubelet_settings(capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> dict[str, Any]:
    """What the kubelet has to keep for itself so that pods may have what is allocatable, and no more."""
    if not capacity:
        return {}
    settings: dict[str, Any] = {}
    if "pods" in capacity:
        settings["maxPods"] = int(capacity["pods"])
    kept = {}
    if "cpu" in allocatable:
        kept["cpu"] = parse_quantity(capacity["cpu"]) - parse_quantity(allocatable["cpu"])
    if "memory" in allocatable:
        huge = sum(parse_quantity(q) for n, q in capacity.items() if n.startswith(_HUGE))
        left = parse_quantity(capacity["memory"]) - huge - EVICTION_BYTES
        kept["memory"] = left - parse_quantity(allocatable["memory"])
    reserved = {name: f"{amount.normalize():f}" for name, amount in kept.items() if amount > 0}
    return settings | ({"systemReserved": reserved} if reserved else {})


def _memory_file(machine: Hardware) -> str:
    total = machine.memory // _KIB
    huge = sum(size * count for size, count in machine.huge_pages.items())
    free = total - huge
    values = {
        "MemTotal": total,
        "MemFree": free,
        "MemAvailable": free,
        "Buffers": 0,
        "Cached": 0,
        "SwapCached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Hugetlb": huge,
    }
    return "".join(f"{name + ':':<16}{value:>12} kB\n" for name, value in values.items())


def _processor_file(machine: Hardware) -> str:
    return "".join(
        f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8480+\ncpu MHz\t\t: 2000.000\n"
        f"physical id\t: {machine.socket(number)}\n"
        f"siblings\t: {machine.cores * machine.threads}\n"
        f"core id\t\t: {machine.core(number)}\ncpu cores\t: {machine.cores}\n\n"
        for number in range(machine.processors)
    )


def _processors(machine: Hardware) -> dict[str, str]:
    everything = f"0-{machine.processors - 1}\n"
    found = {
        f"{PROCESSORS}/{name}": everything for name in ("online", "possible", "present", "enabled")
    }
    found[f"{PROCESSORS}/offline"] = "\n"
    for number in range(machine.processors):
        found |= _topology(f"{PROCESSORS}/cpu{number}", machine, number)
    return found


def _topology(folder: str, machine: Hardware, number: int) -> dict[str, str]:
    return {
        f"{folder}/topology/core_id": f"{machine.core(number)}\n",
        f"{folder}/topology/physical_package_id": f"{machine.socket(number)}\n",
    }


def _numa_nodes(machine: Hardware) -> dict[str, str]:
    last = machine.sockets - 1
    found = {
        f"{NUMA_NODES}/{name}": f"0-{last}\n" if last else "0\n"
        for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory")
    }
    for node in range(machine.sockets):
        folder = f"{NUMA_NODES}/node{node}"
        total = machine.memory // machine.sockets // _KIB
        near = ["10" if other == node else "21" for other in range(machine.sockets)]
        found[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       {total} kB\nNode {node} MemFree:        {total} kB\n"
        )
        found[f"{folder}/distance"] = " ".join(near) + "\n"
        found |= _pages(f"{folder}/hugepages", machine, machine.sockets)
        for number in range(machine.processors):
            if machine.socket(number) == node:
                found |= _topology(f"{folder}/cpu{number}", machine, number)
    return found


def _pages(folder: str, machine: Hardware, parts: int) -> dict[str, str]:
    found = {}
    for size in _SIZES_KIB:
        count = machine.huge_pages.get(size, 0) // parts
        for name in ("nr_hugepages", "free_hugepages"):
            found[f"{folder}/hugepages-{size}kB/{name}"] = f"{count}\n"
    return found


def write(folder: Path, machine: Hardware) -> dict[str, str]:
    """Write the files below a folder; gives what is to be put over what of the machine: source by path.

    What the machine has not cannot be covered: a kernel without NUMA or huge pages.
    """
    for path, content in files(machine).items():
        file = folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return {path: str(folder / path[1:]) for path in covered() if Path(path).exists()}
