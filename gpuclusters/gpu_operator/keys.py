"""Keys of the values of the chart gpu-operator: which there are, and what each holds.

The chart has no schema: Helm takes a mistyped key and does nothing with it. The dated table,
`data/gpu_operator_values.yaml`, has every key by major release, so that a mistake is found at preview.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from gpuclusters.compat.dated_table import Row, Table, document

Path = tuple[str, ...]
_GROUP = "with"


class Kind(StrEnum):
    """What a key holds."""

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
    """One key."""

    kind: Kind
    majors: tuple[str, ...]
    """Major releases that read it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one value."""

    path: Path
    wrong: str
    instead: str


@cache
def table() -> _Table:
    """The table as it is packaged."""
    return _Table.model_validate(document("gpu_operator_values"))


@cache
def keys() -> Mapping[Path, Key]:
    """Every key by its path."""
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
    if text.startswith(">="):
        return known[known.index(text[2:]) :]
    if text.startswith("<="):
        return known[: known.index(text[2:]) + 1]
    if text:
        first, last = text.split("..")
        return known[known.index(first) : known.index(last) + 1]
    return known


def tree_of(major: str) -> Mapping[Path, Kind]:
    """The keys that a major release reads; those of the newest one if nobody has read about it."""
    known = table().majors
    wanted = major if major in known else known[-1]
    return {path: key.kind for path, key in keys().items() if wanted in key.majors}


def problems(values: Mapping[str, Any], major: str) -> Iterator[Problem]:
    """Everything in these values that the chart of a major release would not read, or would misread."""
    tree = tree_of(major)
    sections = {path[:end] for path in tree for end in range(1, len(path))}
    yield from _problems(values, (), tree, sections, major)


def _problems(
    values: Mapping[str, Any],
    path: Path,
    tree: Mapping[Path, Kind],
    sections: set[Path],
    major: str,
) -> Iterator[Problem]:
    for name, value in values.items():
        here = (*path, str(name))
        gone = table().gone.get(".".join(here))
        if gone is not None:
            when = f"since {gone.since}" if gone.since else "and never was"
            yield Problem(here, f"is not read by the chart {when}", gone.instead)
        elif here in tree:
            yield from _value_problems(here, value, tree[here])
        elif here in sections:
            if isinstance(value, Mapping):
                yield from _problems(value, here, tree, sections, major)
            elif value is None:
                yield _nothing(here)
            else:
                yield Problem(here, "is a section of the chart", "write keys and values beneath it")
        else:
            yield _unknown(here, tree, sections, major)


def _nothing(path: Path) -> Problem:
    return Problem(
        path,
        "has no value, which removes the chart's own default",
        "remove the key, or write a value",
    )


def _unknown(path: Path, tree: Mapping[Path, Kind], sections: set[Path], major: str) -> Problem:
    read_in = _read_in(path)
    if read_in:
        newest = read_in[-1] == table().majors[-1]
        when = f"since {read_in[0]}" if newest else f"until {read_in[-1]}"
        return Problem(
            path,
            f"is not read by the chart of {major}; it is {when}",
            "remove it, or choose another operator.version",
        )
    places = [one for one in (*tree, *sections) if one[:-1] == path[:-1]]
    beside = difflib.get_close_matches(path[-1], [one[-1] for one in places], n=1, cutoff=0.6)
    if beside:
        near = ".".join((*path[:-1], beside[0]))
        return Problem(path, "is not a key of the chart", f"did you mean {near}?")
    same = sorted(".".join(one) for one in tree if one[-1] == path[-1])
    if same and len(same) <= 3:
        return Problem(path, "is not a key of the chart", f"did you mean {' or '.join(same)}?")
    shown = ", ".join(sorted(one[-1] for one in set(places))[:12])
    return Problem(path, "is not a key of the chart", f"remove it; the keys here are {shown}")


def _read_in(path: Path) -> tuple[str, ...]:
    """The majors that read a key, or any below it; empty if none does."""
    found = {
        major for one, key in keys().items() if one[: len(path)] == path for major in key.majors
    }
    return tuple(major for major in table().majors if major in found)


def _value_problems(path: Path, value: Any, kind: Kind) -> Iterator[Problem]:
    if value is None:
        yield _nothing(path)
    elif kind is Kind.ENV:
        yield from _environment(path, value)
    elif kind is Kind.FLAG and not isinstance(value, bool):
        yield Problem(
            path,
            'is neither true nor false: a template takes any text, also "false", for true',
            "write true or false, without quotes",
        )
    elif kind is Kind.NUMBER and (isinstance(value, bool) or not isinstance(value, int)):
        yield Problem(path, "is not a whole number", "write a whole number, without quotes")
    elif kind is Kind.TEXT and isinstance(value, float):
        yield Problem(
            path, "is a number with a point, which loses its last zeros", "put it in quotes"
        )
    elif kind is Kind.TEXT and (isinstance(value, bool) or not isinstance(value, str | int)):
        yield Problem(path, "is not text", "write text")
    elif kind is Kind.LIST and not isinstance(value, list | tuple):
        yield Problem(path, "is not a list", "write a list, one entry per line after '- '")
    elif kind is Kind.ANY:
        yield from _nothings(path, value)


def _environment(path: Path, value: Any) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield Problem(path, "is not a list of variables", "write entries {name: NAME, value: text}")
        return
    seen: set[str] = set()
    for entry in value:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(name, str):
            yield Problem(path, "has an entry without a name", "write {name: NAME, value: text}")
            continue
        here = (*path, name)
        if name in seen:
            yield Problem(here, "is there twice, and the last one counts", "remove one of them")
        seen.add(name)
        if "value" in entry and not isinstance(entry["value"], str):
            yield Problem(
                here,
                "is not text: the API server refuses the whole ClusterPolicy "
                "(NVIDIA/gpu-operator, issue 207)",
                f'put it in quotes: "{_spelled(entry["value"])}"',
            )


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:40]


def _nothings(path: Path, value: Any) -> Iterator[Problem]:
    if value is None:
        yield _nothing(path)
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _nothings((*path, str(name)), below)


def environment(values: Mapping[str, Any], operand: str) -> Mapping[str, str]:
    """The variables of an operand, as far as they are text; empty if it has none."""
    part = values.get(operand)
    entries = part.get("env") if isinstance(part, Mapping) else None
    return {
        str(entry["name"]): str(entry.get("value", ""))
        for entry in (entries if isinstance(entries, list | tuple) else ())
        if isinstance(entry, Mapping) and "name" in entry
    }


def at(values: Mapping[str, Any], dotted: str) -> Any:
    """What the values hold under a dotted key; None if nothing."""
    current: Any = values
    for part in dotted.split("."):
        if not isinstance(current, Mapping):
            return None
        current = current.get(part)
    return current
