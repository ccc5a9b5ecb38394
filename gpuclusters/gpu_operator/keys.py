"""Keys of the values of the chart gpu-operator: which there are, and what each holds.

The chart has no schema: Helm takes a mistyped key and does nothing with it. The dated table,
`data/gpu_operator_values.yaml`, has every key by major release, so that a mistake is found at preview.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial, reduce
from typing import Any

from gpuclusters.compat.dated_table import Row, Table

Path = tuple[str, ...]
_GROUP = "with"
_MOST = 3
"""Keys that are suggested for one that is not known."""


class Kind(StrEnum):
    FLAG = "flag"
    TEXT = "text"
    NUMBER = "number"
    LIST = "list"
    ENV = "env"
    """A list of `{name, value}`, whose values the API takes as text only."""
    ANY = "any"
    """A mapping of somebody else, which is not looked into."""


class Gone(Row):
    """A key that guides name and that no release reads any more."""

    instead: str
    since: str | None = None
    """The first release that ignored it; None if none ever read it."""


class _Table(Table):
    majors: tuple[str, ...]
    gone: Mapping[str, Gone]
    groups: Mapping[str, Any]
    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    kind: Kind
    majors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    path: Path
    wrong: str
    instead: str


table = cache(partial(_Table.packaged, "gpu_operator_values"))


@cache
def keys() -> Mapping[Path, Key]:
    return dict(_walk(table().keys, ()))


def _walk(below: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Key]]:
    for name, value in below.items():
        if name == _GROUP:
            yield from _walk(table().groups[value], path)
        elif isinstance(value, Mapping):
            yield from _walk(value, (*path, name))
        else:
            kind, _, majors = str(value).partition(" ")
            yield (*path, name), Key(Kind(kind), _majors(majors))


def _majors(text: str) -> tuple[str, ...]:
    """`>=26.3`, `<=25.3`, `25.10..26.3`, or nothing for all."""
    known = table().majors
    first, _, last = text.partition("..")
    if text.startswith(">="):
        first, last = text[2:], known[-1]
    elif text.startswith("<="):
        first, last = known[0], text[2:]
    return known[known.index(first) : known.index(last) + 1] if text else known


def tree_of(major: str) -> Mapping[Path, Kind]:
    """The keys that a major release reads; those of the newest one if nobody has read about it."""
    wanted = major if major in table().majors else table().majors[-1]
    return {path: key.kind for path, key in keys().items() if wanted in key.majors}


def problems(values: Mapping[str, Any], major: str) -> Iterator[Problem]:
    """Everything in these values that the chart of a major release would not read, or would misread."""
    return _Chart(major).problems(values, ())


class _Chart:
    def __init__(self, major: str) -> None:
        self.major = major
        self.tree = tree_of(major)
        self.sections = {path[:end] for path in self.tree for end in range(1, len(path))}

    def problems(self, values: Mapping[str, Any], path: Path) -> Iterator[Problem]:
        for name, value in values.items():
            here = (*path, str(name))
            gone = table().gone.get(".".join(here))
            if gone is not None:
                when = f"since {gone.since}" if gone.since else "and never was"
                yield Problem(here, f"is not read by the chart {when}", gone.instead)
            elif here in self.tree:
                yield from _wrong_value(here, value, self.tree[here])
            elif here not in self.sections:
                yield self._unknown(here)
            elif isinstance(value, Mapping):
                yield from self.problems(value, here)
            elif value is None:
                yield _empty(here)
            else:
                yield Problem(here, "is a section of the chart", "write keys and values beneath it")

    def _unknown(self, path: Path) -> Problem:
        majors = {m for one, key in keys().items() if one[: len(path)] == path for m in key.majors}
        if read_in := [major for major in table().majors if major in majors]:
            newest = read_in[-1] == table().majors[-1]
            when = f"since {read_in[0]}" if newest else f"until {read_in[-1]}"
            wrong = f"is not read by the chart of {self.major}; it is {when}"
            return Problem(path, wrong, "remove it, or choose another operator.version")
        beside = sorted({o[-1] for o in (*self.tree, *self.sections) if o[:-1] == path[:-1]})
        near = difflib.get_close_matches(path[-1], beside, n=1, cutoff=0.6)
        likely = [".".join((*path[:-1], one)) for one in near]
        likely = likely or sorted(".".join(one) for one in self.tree if one[-1] == path[-1])
        instead = f"remove it; the keys here are {', '.join(beside[:12])}"
        if 0 < len(likely) <= _MOST:
            instead = f"did you mean {' or '.join(likely)}?"
        return Problem(path, "is not a key of the chart", instead)


def _empty(path: Path) -> Problem:
    wrong = "has no value, which removes the chart's own default"
    return Problem(path, wrong, "remove the key, or write a value")


def _wrong_value(path: Path, value: Any, kind: Kind) -> Iterator[Problem]:
    if value is None:
        yield _empty(path)
        return
    is_flag, is_list = isinstance(value, bool), isinstance(value, list | tuple)
    wrong: tuple[str, str] | None = None
    match kind:
        case Kind.ANY:
            if isinstance(value, Mapping):
                for name, below in value.items():
                    yield from _wrong_value((*path, str(name)), below, kind)
        case Kind.ENV if is_list:
            yield from _environment(path, value)
        case Kind.ENV:
            wrong = "is not a list of variables", "write entries {name: NAME, value: text}"
        case Kind.FLAG if not is_flag:
            wrong = (
                'is neither true nor false: a template takes any text, also "false", for true',
                "write true or false, without quotes",
            )
        case Kind.NUMBER if is_flag or not isinstance(value, int):
            wrong = "is not a whole number", "write a whole number, without quotes"
        case Kind.TEXT if isinstance(value, float):
            wrong = "is a number with a point, which loses its last zeros", "put it in quotes"
        case Kind.TEXT if is_flag or not isinstance(value, str | int):
            wrong = "is not text", "write text"
        case Kind.LIST if not is_list:
            wrong = "is not a list", "write a list, one entry per line after '- '"
    if wrong:
        yield Problem(path, *wrong)


def _environment(path: Path, entries: Sequence[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for entry in entries:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str):
            yield Problem(path, "has an entry without a name", "write {name: NAME, value: text}")
            continue
        here = (*path, name)
        if name in seen:
            yield Problem(here, "is there twice, and the last one counts", "remove one of them")
        seen.add(name)
        value = entry.get("value", "")
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)[:40]
            wrong = (
                "is not text: the API server refuses the whole ClusterPolicy "
                "(NVIDIA/gpu-operator, issue 207)"
            )
            yield Problem(here, wrong, f'put it in quotes: "{text}"')


def environment(values: Mapping[str, Any], operand: str) -> Mapping[str, str]:
    """The variables of an operand, as far as they are text; empty if it has none."""
    entries = at(values, f"{operand}.env")
    found = entries if isinstance(entries, list | tuple) else ()
    known = (entry for entry in found if isinstance(entry, Mapping) and "name" in entry)
    return {str(entry["name"]): str(entry.get("value", "")) for entry in known}


def at(values: Mapping[str, Any], dotted: str) -> Any:
    """What the values hold under a dotted key; None if nothing."""

    def below(part: Any, name: str) -> Any:
        return part.get(name) if isinstance(part, Mapping) else None

    return reduce(below, dotted.split("."), values)
