"""The kernel's command line, as the kernel reads it.

Sources: `lib/cmdline.c` (`next_arg`: quotes keep blanks together), `kernel/params.c` (`-` and `_` are the
same in a name; the last value of a module's option counts), `drivers/iommu/intel/iommu.c` (`on` and `off`,
the last one counts), kmod's `libkmod-config.c` (every `modprobe.blacklist=` counts) and `mm/hugetlb.c` (the
first count of a page size counts).
"""

import re
from collections.abc import Sequence

_GIB_SIZES = frozenset({"1G", "1g", "1024M", "1024m"})


def words(line: str) -> list[str]:
    return re.findall(r'(?:[^\s"]|"[^"]*")+', line)


def name_of(argument: str) -> str:
    return argument.partition("=")[0].replace("-", "_")


def values(line: str, name: str) -> list[str]:
    """What is said under this name, in order."""
    return [word.partition("=")[2] for word in words(line) if name_of(word) == name]


def has_iommu(line: str) -> bool:
    """Whether the IOMMU is switched on; no distribution of these hosts does it by default."""
    on = False
    for name in ("intel_iommu", "amd_iommu"):
        for option in ",".join(values(line, name)).split(","):
            on = {"on": True, "off": False}.get(option, on)
    return on


def forbidden_modules(line: str) -> frozenset[str]:
    """Modules of `module_blacklist=`, which nobody can load."""
    return _modules(values(line, "module_blacklist")[-1:])


def blacklisted_modules(line: str) -> frozenset[str]:
    """Modules of `modprobe.blacklist=`, which do not load by themselves."""
    return _modules(values(line, "modprobe.blacklist"))


def vfio_ids(line: str) -> list[str]:
    """`vendor:device` of `vfio-pci.ids=`."""
    return ",".join(values(line, "vfio_pci.ids")[-1:]).split(",")


def huge_pages_1g(line: str, nodes: Sequence[int]) -> dict[int, int]:
    """How many pages of 1 GiB each NUMA node shall reserve; a plain number is spread evenly."""
    size = ""
    for word in words(line):
        name, _, value = word.partition("=")
        if name == "hugepagesz":
            size = value
        elif name == "hugepages" and size in _GIB_SIZES:
            if value.isdecimal():
                return dict.fromkeys(nodes, int(value) // len(nodes))
            pairs = (pair.partition(":") for pair in value.split(","))
            return {int(n): int(c) for n, _, c in pairs if n.isdecimal() and c.isdecimal()}
    return {}


def _modules(lists: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in ",".join(lists).replace("-", "_").split(",") if name)
