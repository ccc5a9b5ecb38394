"""What a rule is: a pure function over a section or a part of it, and the code of the fault that it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.core.section import Section


class Wrong:
    """What is wrong with one key. What was written there is read from the section itself."""

    def __init__(
        self,
        path: str | Path,
        case: str = "",
        *,
        got: str = "",
        **values: Any,
    ) -> None:
        """What is said stands with the code, by case, with a place for each of these values.

        Args:
            path: below what the rule is about; `network.bridge` is a path too.
            case: which of several ways in which the code is said.
            got: what was written, where the value itself does not show it.
            values: what is put in.
        """
        self.path, self.case, self.got, self.values = path, case, got, values


def _value(section: Any, path: Path) -> Any:
    current = section
    for part in path:
        if isinstance(current, Section):
            current = getattr(current, str(part).replace("-", "_"))
        elif isinstance(current, Mapping):
            current = current.get(part)
        else:
            current = current[part] if current is not None else None
    return current


Wrongs = Iterable[Wrong]
Check = Callable[..., Wrongs]
"""From the section of the cluster type, and from the part of it that the rule is about."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule. It runs as far as what it reads could be read."""

    code: str
    """Of the fault; `core/codes` says what it means."""
    find: Check
    of: str = ""
    """Field that it is about: each item of a list, or the value itself if there is one."""
    kind: type = object
    """What the value must be for the rule to be asked."""
    each: Sequence[str] = ()
    """More lists whose items it looks at one by one: what is wrong with one says nothing about the others."""
    level: Level = Level.BLOCK
    shared: bool = False
    """Whether several cluster types have it: then it is told a part too, if only the whole section."""
    section: type[Section] = Section
    """The variant of the section that it is about."""

    def check(self, section: Any) -> Iterator[Finding]:
        if not isinstance(section, self.section):
            return
        for prefix, parts in self._about(section):
            if self.shared:
                parts = parts or (section,)
            for one in self.find(section, *parts):
                below = tuple(one.path.split(".")) if isinstance(one.path, str) else one.path
                path = (*prefix, *below)
                got = one.got or show(_value(section, path), path)
                found = finding(self.code, path, got, one.case, **one.values)
                yield replace(found, level=self.level)

    def _about(self, section: Any) -> Iterator[tuple[Path, tuple[Any, ...]]]:
        if not self.of:
            yield (), ()
            return
        key = self.of.replace("_", "-")
        value = getattr(section, self.of)
        if isinstance(value, tuple):
            for position, item in enumerate(value):
                yield (key, position), (item,)
            # What is true of each tenant is true of those on demand.
            also = getattr(section, f"{self.of}_on_demand", None)
            if also is not None:
                yield (f"{key}-on-demand",), (also.as_tenant(),)
        elif value is not None and isinstance(value, self.kind):
            yield (key,), (value,)


def rule(code: str, of: str = "", **marks: Any) -> Callable[[Check], Rule]:
    """Make a rule of a function. `of` and `each` are field names of the section's model."""
    return lambda find: Rule(code, find, of, **marks)


def of(*modules: ModuleType) -> tuple[Rule, ...]:
    """The rules of modules, each once, as they stand there."""
    values = [value for module in modules for value in vars(module).values()]
    found = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return tuple(dict.fromkeys(one for one in found if isinstance(one, Rule)))


def repeats(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Positions of values that were there before, with the position of the first."""
    first: dict[object, int] = {}
    for position, value in enumerate(values):
        if first.setdefault(value, position) != position:
            yield position, first[value]


def named_twice(key: str, names: Sequence[str], case: str = "") -> Iterator[Wrong]:
    """Items of a list that have the name of another before them."""
    for position, first in repeats(names):
        yield Wrong((key, position, "name"), case, first=first)


def machines_are_listed_once(config: Any) -> Wrongs:
    """Names, addresses and host keys of two machines; hosts that are not listed have none."""
    hosts = config.hosts
    if not isinstance(hosts, ExistingHosts):
        return
    values = {
        "name": [machine.name for machine in hosts.machines],
        "address": [f"{machine.address}:{machine.port}" for machine in hosts.machines],
        "host-key": [machine.host_key for machine in hosts.machines],
    }
    for key, each in values.items():
        for position, first in repeats(each):
            path, case = (
                ("hosts", "machines", position, key),
                "key" if key == "host-key" else "name",
            )
            yield Wrong(path, case, got=show(each[position]), first=first)


def unexpected_names(path: Path, stated: Sequence[str], known: Collection[str]) -> Wrongs:
    """Names that are none of the cluster's."""
    for position, name in enumerate(stated):
        if name not in known:
            case = "known" if known else "none"
            yield Wrong((*path, position), case, known=show_values(sorted(known)))
