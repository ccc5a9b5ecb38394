"""The kernel's command line: what an argument means beside others, and how ours are added to it. Pure.

Others have arguments on the same line (console, crash kernel, storage); they are never dropped, and what
they say is never silently overridden: an argument of ours that contradicts one of theirs is a conflict for
the operator to decide. How the kernel reads an argument that is there twice differs; the groups below say
how, after its sources:

- `iommu=`, `intel_iommu=`, `amd_iommu=` are lists that add up (arch/x86/kernel/pci-dma.c, drivers/iommu);
- `modprobe.blacklist=` adds up too, kmod reads all of them (libkmod-config.c);
- `module_blacklist=` and options of modules: the last one counts (kernel/module, kernel/params.c);
- `hugepages=` belongs to the `hugepagesz=` before it, and the first one of a size counts, like the first
  `default_hugepagesz=` (mm/hugetlb.c: "specified twice … ignoring").

Huge pages of 1 GiB can be had only at boot, while memory is in one piece. A virtual machine's memory is
mapped into the IOMMU page by page; with such pages a machine with eight GPUs starts in minutes. Source: the
kernel's `Documentation/admin-guide/kernel-parameters.txt`, `hugepages=` with `<node>:<count>,…` (since 5.16).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

ADDING = frozenset({"amd_iommu", "intel_iommu", "iommu", "modprobe.blacklist"})
"""Lists of which all occurrences count together."""
LAST_LIST = frozenset({"module_blacklist", "vfio_pci.ids"})
"""Lists of which only the last occurrence counts, so that ours repeats what others listed."""
_FIRST = frozenset({"default_hugepagesz"})
_OPPOSITES = frozenset({"off", "soft", "nopt"})
_HUGE, _SIZE = "hugepages", "hugepagesz"
_DEFAULT_SIZE = "default"

_SAFE = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,:;/+@%-]*)?")


@dataclass(frozen=True, slots=True)
class Conflict:
    """An argument that somebody else set and that contradicts one of ours."""

    theirs: str
    ours: str


def huge_page_arguments(pages: Mapping[int, int]) -> tuple[str, ...]:
    """Kernel arguments that reserve so many pages of 1 GiB on each NUMA node; none for none."""
    counts = ",".join(f"{node}:{count}" for node, count in sorted(pages.items()) if count)
    return ("default_hugepagesz=1G", "hugepagesz=1G", f"hugepages={counts}") if counts else ()


def pages_by_node(value: str) -> Mapping[int, int] | None:
    """Pages by node of a value of `hugepages=`; None for a plain number, which the kernel spreads."""
    if not re.fullmatch(r"\d+:\d+(,\d+:\d+)*", value, re.ASCII):
        return None
    pairs = (part.split(":") for part in value.split(","))
    return {int(node): int(count) for node, count in pairs}


def split(line: str) -> tuple[str, ...]:
    """The arguments of a line; blanks inside double quotes do not separate, as in the kernel."""
    found: list[str] = []
    word, quoted, begun = "", False, False
    for letter in line:
        if letter == '"':
            quoted, begun = not quoted, True
            word += letter
        elif letter.isspace() and not quoted:
            if begun:
                found.append(word)
            word, begun = "", False
        else:
            word, begun = word + letter, True
    return (*found, word) if begun else tuple(found)


def key_of(argument: str) -> str:
    """The name before `=`; to the kernel `-` and `_` are the same in it."""
    return argument.partition("=")[0].replace("-", "_")


def value_of(argument: str) -> str:
    """What stands behind the first `=`."""
    return argument.partition("=")[2]


def check(argument: str) -> str:
    """The argument, if no shell or boot loader reads letters of it as its own."""
    if not _SAFE.fullmatch(argument):
        raise ValueError(
            "is not one kernel argument; write name or name=value, without blanks and quotes"
        )
    return argument


def _named(arguments: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each argument with the name of its effect; pages are `hugepages@<size>`, together with their size."""
    size, before = _DEFAULT_SIZE, tuple[str, ...]()
    for argument in arguments:
        name = key_of(argument)
        if name == _SIZE:
            size, before = _page_size(value_of(argument)), (argument,)
        elif name == _HUGE:
            yield f"{_HUGE}@{size}", (*before, argument)
        else:
            yield name, (argument,)


def effective(arguments: Iterable[str]) -> Mapping[str, str]:
    """What counts in the end, by name; pages by `hugepages@<their size>`."""
    found: dict[str, str] = {}
    for name, (*_, argument) in _named(arguments):
        value = value_of(argument)
        if name.startswith(f"{_HUGE}@"):
            found.setdefault(name, _pages(value))
        elif name in _FIRST:
            found.setdefault(name, _page_size(value))
        elif name in ADDING and name in found:
            found[name] = _joined(found[name], value)
        else:
            found[name] = value
    return found


def _unmet(have: Mapping[str, str], wanted: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Those of the wanted arguments that do not hold yet."""
    goal = effective(wanted)
    for name, arguments in _named(wanted):
        listed, values = {*have.get(name, "").split(",")}, {*goal[name].split(",")}
        if name not in have:
            holds = False
        elif name in ADDING:
            holds = values <= listed and not _OPPOSITES & listed
        else:
            holds = values <= listed if name in LAST_LIST else have[name] == goal[name]
        if not holds:
            yield name, arguments


def lacking(line: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted arguments that this line does not give effect to, in their order."""
    unmet = _unmet(effective(split(line)), wanted)
    return tuple(dict.fromkeys(arguments[-1] for _, arguments in unmet))


def conflicts(others: str, wanted: Sequence[str]) -> tuple[Conflict, ...]:
    """What others say on the line that contradicts what we want."""
    theirs, found = split(others), list[Conflict]()
    have = effective(theirs)
    for name, (*_, argument) in _unmet(have, wanted):
        named = [one for one in theirs if key_of(one) == name.partition("@")[0]]
        if name in ADDING:
            named = [one for one in named if _OPPOSITES & {*value_of(one).split(",")}]
        if name in have and name not in LAST_LIST and named:
            found.append(Conflict(named[-1], argument))
    return tuple(found)


def additions(others: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """What has to be added behind the others' arguments so that all that is wanted holds.

    Arguments that already hold are left out. There must be no `conflicts`.
    """
    have, added = effective(split(others)), list[str]()
    for name, arguments in _unmet(have, wanted):
        if name in LAST_LIST and have.get(name):
            key, _, value = arguments[-1].partition("=")
            added.append(f"{key}={_joined(have[name], value)}")
        else:
            added += arguments
    return tuple(dict.fromkeys(added))


def _joined(one: str, other: str) -> str:
    return ",".join(dict.fromkeys([*one.split(","), *other.split(",")]))


def shared_names(others: str, ours: Sequence[str]) -> tuple[str, ...]:
    """Names of ours that are on the others' line as well, in order; sizes and counts of pages are one."""
    pages = {_SIZE, _HUGE}
    theirs = {key_of(argument) for argument in split(others)}
    if theirs & pages:
        theirs |= pages
    return tuple(dict.fromkeys(key_of(a) for a in ours if key_of(a) in theirs))


def _page_size(value: str) -> str:
    """The kernel's memparse knows K, M, G in either case; 1024M is 1G."""
    found = re.fullmatch(r"(\d+)([kKmMgG]?)", value)
    if not found:
        return value
    factor = {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
    return str(int(found[1]) << factor)


def _pages(value: str) -> str:
    pages = pages_by_node(value)
    if pages is None:
        return value
    return ",".join(f"{node}:{count}" for node, count in sorted(pages.items()))
