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

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    """Kernel arguments that reserve so many pages of 1 GiB on each NUMA node; none for none.

    Raises:
        ValueError: a number of a node, or of its pages, is negative.
    """
    if any(node < 0 or count < 0 for node, count in pages.items()):
        raise ValueError("NUMA nodes and huge pages are counted from 0; write no negative number")
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
    """The argument, if it can stand in every boot loader's configuration as it is.

    Raises:
        ValueError: blanks, quotes, or letters that a shell or GRUB would read as their own.
    """
    if not _SAFE.fullmatch(argument):
        raise ValueError(
            "is not one kernel argument; write name or name=value, without blanks and quotes"
        )
    return argument


def effective(arguments: Iterable[str]) -> Mapping[str, str]:
    """What counts in the end, by name; pages by `hugepages@<their size>`."""
    found: dict[str, str] = {}
    size = _DEFAULT_SIZE
    for argument in arguments:
        name, value = key_of(argument), value_of(argument)
        if name == _SIZE:
            size = _page_size(value)
        elif name == _HUGE:
            found.setdefault(f"{_HUGE}@{size}", _pages(value))
        elif name in _FIRST:
            found.setdefault(name, _page_size(value))
        elif name in ADDING and name in found:
            found[name] = ",".join(dict.fromkeys([*found[name].split(","), *value.split(",")]))
        else:
            found[name] = value
    return found


def lacking(line: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the wanted arguments that this line does not give effect to, in their order."""
    have = effective(split(line))
    return tuple(
        argument
        for name, argument in _named(wanted)
        if not _satisfied(name, effective(wanted).get(name, ""), have)
    )


def conflicts(others: str, wanted: Sequence[str]) -> tuple[Conflict, ...]:
    """What others say on the line that contradicts what we want."""
    theirs = split(others)
    have, found = effective(theirs), list[Conflict]()
    for name, argument in _named(wanted):
        value = effective(wanted).get(name, "")
        if name not in have or _satisfied(name, value, have) or name in LAST_LIST:
            continue
        if name in ADDING and not (_OPPOSITES & set(have[name].split(","))):
            continue
        found.append(Conflict(_last_with(theirs, name), argument))
    return tuple(found)


def additions(others: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """What has to be added behind the others' arguments so that all that is wanted holds.

    Arguments that already hold are left out. There must be no `conflicts`.
    """
    have, added = effective(split(others)), list[str]()
    for argument in wanted:
        name = key_of(argument)
        if name == _SIZE:
            continue  # goes with its pages
        full = f"{_HUGE}@{_size_before(wanted, argument)}" if name == _HUGE else name
        if _satisfied(full, effective(wanted).get(full, ""), have):
            continue
        if name == _HUGE:
            added += [a for a in _pair(wanted, argument) if a not in added]
        elif name in LAST_LIST and have.get(name):
            names = dict.fromkeys([*have[name].split(","), *value_of(argument).split(",")])
            added.append(f"{argument.partition('=')[0]}={','.join(names)}")
        else:
            added.append(argument)
    return tuple(dict.fromkeys(added))


def shared_names(others: str, ours: Sequence[str]) -> tuple[str, ...]:
    """Names of ours that are on the others' line as well, in order; sizes and counts of pages are one."""
    pages = {_SIZE, _HUGE}
    theirs = {key_of(argument) for argument in split(others)}
    if theirs & pages:
        theirs |= pages
    return tuple(dict.fromkeys(key_of(a) for a in ours if key_of(a) in theirs))


def _named(wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Each wanted argument with the name under which its effect is found; sizes go with their pages."""
    pairs: dict[str, str] = {}
    for argument in wanted:
        name = key_of(argument)
        if name == _HUGE:
            pairs.setdefault(f"{_HUGE}@{_size_before(wanted, argument)}", argument)
        elif name != _SIZE:
            pairs.setdefault(name, argument)
    return list(pairs.items())


def _satisfied(name: str, value: str, have: Mapping[str, str]) -> bool:
    if name not in have:
        return False
    if name in ADDING | LAST_LIST:
        listed = set(have[name].split(","))
        if name in ADDING and _OPPOSITES & listed:
            return False
        return set(value.split(",")) <= listed
    return have[name] == value


def _last_with(arguments: Sequence[str], name: str) -> str:
    plain = name.partition("@")[0]
    named = [argument for argument in arguments if key_of(argument) == plain]
    if name in ADDING:
        against = [a for a in named if _OPPOSITES & set(value_of(a).split(","))]
        return against[-1]
    return named[-1]


def _size_before(wanted: Sequence[str], pages: str) -> str:
    size = _DEFAULT_SIZE
    for argument in wanted:
        if argument == pages:
            return size
        if key_of(argument) == _SIZE:
            size = _page_size(value_of(argument))
    return size


def _pair(wanted: Sequence[str], pages: str) -> list[str]:
    before = [a for a in wanted[: list(wanted).index(pages)] if key_of(a) == _SIZE]
    return [*before[-1:], pages]


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
