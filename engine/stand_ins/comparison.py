"""What differs between two sets of plain properties, path by path."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine import paths
from engine.stand_ins.calls import Diff, Kind
from engine.values import Secret, contains_unknown

Changes = dict[paths.Path, Kind]


def compare(old: Any, new: Any, path: paths.Path = ()) -> Changes:
    """Changes from `old` to `new`; lists item by item, an unknown always as a change."""
    old, new = _uncovered(old), _uncovered(new)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changes: Changes = {}
        for key in {**old, **new}:
            changes |= _entry(old, new, key, path)
        return changes
    if isinstance(old, list) and isinstance(new, list):
        return _lists(old, new, path)
    if same(old, new):
        return {}
    return {path: Kind.UPDATE}


def same(old: Any, new: Any) -> bool:
    """Equality of plain values; `True` is not `1`, and nothing unknown equals anything."""
    if isinstance(old, bool) != isinstance(new, bool) or contains_unknown(new):
        return False
    return bool(old == new)


def _entry(old: Mapping[str, Any], new: Mapping[str, Any], key: str, path: paths.Path) -> Changes:
    here = (*path, key)
    if new.get(key) is None:
        return {here: Kind.DELETE} if old.get(key) is not None else {}
    if old.get(key) is None:
        return {here: Kind.ADD}
    return compare(old[key], new[key], here)


def _lists(old: Sequence[Any], new: Sequence[Any], path: paths.Path) -> Changes:
    changes: Changes = {}
    for index in range(max(len(old), len(new))):
        here = (*path, index)
        if index >= len(new):
            changes[here] = Kind.DELETE
        elif index >= len(old):
            changes[here] = Kind.ADD
        else:
            changes |= compare(old[index], new[index], here)
    return changes


def without_ignored(changes: Changes, ignored: Sequence[str]) -> Changes:
    """The changes outside the paths that the program asked to ignore."""
    patterns = [paths.parse(text) for text in ignored]
    return {
        path: kind
        for path, kind in changes.items()
        if not any(paths.contains(pattern, path) for pattern in patterns)
    }


def diff_of(changes: Changes, replacing: Collection[paths.Key] = ()) -> Diff:
    """The changes as an answer; those in `replacing`, `a.b` of one within another, need a new resource."""

    def replaces(path: paths.Path) -> bool:
        keys = [part for part in path if isinstance(part, str)]
        return any(".".join(keys[:end]) in replacing for end in range(1, len(keys) + 1))

    return Diff(
        {
            paths.render(path): kind.with_replace() if replaces(path) else kind
            for path, kind in sorted(changes.items(), key=lambda change: str(change[0]))
        }
    )


def _uncovered(value: Any) -> Any:
    while isinstance(value, Secret):
        value = value.value
    return value
