"""A machine with other processors and memory than this one has, as the kubelet finds it in /proc and /sys.

The kubelet asks cadvisor (`machine/info.go`, `utils/sysinfo`), which counts folders of processors below
/sys/devices/system/node, takes `MemTotal` of /proc/meminfo, and multiplies pages below
/sys/kernel/mm/hugepages. Containers have a /proc and /sys of their own and see what is really there.

A kubelet also puts its pods on the processors that it found, by number, and the kernel refuses a number that
it has not. So each folder leads to a processor that is really there: cpu1, cpu01 and cpu001 are three folders
and one number.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

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
        return 1 if self.processors % (2 * self.sockets) else 2

    @property
    def cores(self) -> int:
        return self.processors // self.sockets // self.threads


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
            size = int(_amount(name.removeprefix(_HUGE))) // _KIB
            if size not in _SIZES_KIB:
                raise ValueError(f"there are no huge pages of the size in {name}; use 2Mi or 1Gi")
            pages[size] = int(_amount(quantity)) // _KIB // size
    memory = int(_amount(capacity["memory"]))
    return Hardware(int(_amount(capacity["cpu"])), memory, pages)


def files(machine: Hardware, there: Sequence[int]) -> dict[str, str]:
    """Content by path of the file on the node; `there` are the processors that this machine really has."""
    return {
        MEMORY_FILE: _memory_file(machine),
        PROCESSOR_FILE: _processor_file(machine),
        **_numa_nodes(machine, there),
        **_pages(HUGE_PAGES, machine, 1),
    }


def covered() -> tuple[str, ...]:
    """Files and folders of the machine that these files take the place of."""
    return (MEMORY_FILE, PROCESSOR_FILE, NUMA_NODES, HUGE_PAGES)


def kubelet_settings(capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> dict[str, Any]:
    """What the kubelet has to keep for itself so that pods may have what is allocatable, and no more."""
    if not capacity:
        return {}
    settings: dict[str, Any] = {}
    if "pods" in capacity:
        settings["maxPods"] = int(capacity["pods"])
    kept = {}
    if "cpu" in allocatable:
        kept["cpu"] = _amount(capacity["cpu"]) - _amount(allocatable["cpu"])
    if "memory" in allocatable:
        huge = sum(_amount(q) for n, q in capacity.items() if n.startswith(_HUGE))
        left = _amount(capacity["memory"]) - huge - EVICTION_BYTES
        kept["memory"] = left - _amount(allocatable["memory"])
    reserved = {name: f"{amount.normalize():f}" for name, amount in kept.items() if amount > 0}
    return settings | ({"systemReserved": reserved} if reserved else {})


def _amount(quantity: str) -> Decimal:
    """The number that a quantity of Kubernetes stands for: `4`, `4000m`, `10Gi`."""
    found = re.fullmatch(r"([0-9.]+)(m|[kMGT]|[KMGT]i)?", quantity)
    if found is None:
        raise ValueError(f"{quantity!r} is no quantity; write it like '4' or '10Gi'")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix == "m":
        return number / 1000
    power = "kMGT".find(suffix[:1].replace("K", "k")) + 1 if suffix else 0
    return number * Decimal(1024 if suffix.endswith("i") else 1000) ** power


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
        f"physical id\t: {number % machine.sockets}\n"
        f"siblings\t: {machine.cores * machine.threads}\n"
        f"core id\t\t: {number // machine.sockets % machine.cores}\n"
        f"cpu cores\t: {machine.cores}\n\n"
        for number in range(machine.processors)
    )


def _numa_nodes(machine: Hardware, there: Sequence[int]) -> dict[str, str]:
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
        for number in range(machine.cores * machine.threads):
            zeros, real = divmod(number, len(there))
            topology = f"{folder}/cpu{'0' * zeros}{there[real]}/topology"
            # Each a core of its own: on one core the kubelet wants different numbers.
            found[f"{topology}/core_id"] = f"{number}\n"
            found[f"{topology}/physical_package_id"] = f"{node}\n"
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

    Raises:
        ValueError: the kernel has no such files, which nothing can be put over then.
    """
    if missing := [path for path in covered() if not Path(path).exists()]:
        raise ValueError(
            f"this kernel has no {' and no '.join(missing)}: its nodes have the machine's own capacity "
            "only; give them none of their own"
        )
    for path, content in files(machine, sorted(os.sched_getaffinity(0))).items():
        file = folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return {path: str(folder / path[1:]) for path in covered()}
