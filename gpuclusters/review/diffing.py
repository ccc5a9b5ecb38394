"""What differs between the two sides of a step, property by property."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from gpuclusters.core.model import LOADER
from gpuclusters.review.plan import Action, Resource, Step
from gpuclusters.review.text import MOST_CHARACTERS, SECRET, UNKNOWN, lines, pair, shown, visible

_KEYS = (
    "name", "id", "key", "host", "device", "path", "ip", "mountPath", "containerPort", "tenant",
)  # fmt: skip
"""What tells one object of a list from the others."""
_LONGEST_PARSED = 200_000
_FEW_WORDS = 100
_FEW_KEYS = 12
OTHER_SECRET = "another secret"  # noqa: S105
"""Note of a difference between two secrets, neither of which is shown."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    before: str | None
    after: str | None
    lines: tuple[str, ...] = ()
    """Instead of both: the lines of a text that differ, each with `+`, `-` or a space before it."""
    note: str = ""
    """Why it is there, where the values do not tell."""


def differences(step: Step) -> list[Difference]:
    """How a resource that stays, or is replaced, differs; in the order of the paths."""
    if step.old is None or step.new is None:
        return []
    found = list(_compared("", step.old.inputs, step.new.inputs))
    found += _hidden_changes(step.old, step.new, step.detailed, {f.path for f in found})
    if step.action in (Action.UPDATE, Action.REPLACE) and not found:
        found += _drift(step.old) or [Difference("", None, None, note=_UNSEEN)]
    if step.protection_changes:
        found.append(Difference("protect", shown(step.old.protect), shown(step.new.protect)))
    told = [_marked(difference, step) for difference in found]
    return sorted(told, key=lambda f: (f.path, f.before or "", f.after or ""))


def _marked(found: Difference, step: Step) -> Difference:
    root = _root(found.path)
    if root in {_root(path) for path in step.hidden}:
        return Difference(found.path, None, None, note="differs; the program hides how")
    if step.action is Action.REPLACE and any(_overlap(found.path, p) for p in step.replace_reasons):
        return replace(found, note="forces the replacement")
    return found


_UNSEEN = "only values that are secret, hidden by the program or found on the machine differ"


def properties(resource: Resource) -> list[tuple[str, str]]:
    """The inputs of a resource that comes, as far as they are said in few words."""
    return [
        (path, text)
        for path, value in _leaves("", resource.inputs, 2)
        if value not in (None, False, "", {}, [], SECRET)
        and len(text := shown(value)) <= _FEW_WORDS
    ]


def _leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and depth and len(value) <= _FEW_KEYS:
        for key in sorted(value):
            yield from _leaves(_below(path, str(key)), value[key], depth - 1)
    else:
        yield path, value


def _hidden_changes(
    old: Resource, new: Resource, detailed: Mapping[str, str], seen: set[str]
) -> Iterator[Difference]:
    """What the provider says differs and the shown inputs do not: secrets, and what was found."""
    for path, kind in sorted(detailed.items()):
        if any(_overlap(path, other) for other in seen):
            continue
        before = _at(old.inputs, path)
        after = _at(new.inputs, path)
        if SECRET in (before, after):
            yield Difference(path, SECRET, SECRET, note=OTHER_SECRET)
        elif before is not after and before != after:
            continue  # told already, under the name of the object that it is in
        elif kind.startswith(("update", "delete", "add")):
            found = _at(old.outputs, path)
            yield Difference(path, _shown(found), _shown(after), note="found different")


def _shown(value: Any) -> str | None:
    return None if value is _ABSENT else shown(value)


def _drift(old: Resource) -> list[Difference]:
    told = old.outputs.get("drift")
    found = [one["problem"] if isinstance(one, Mapping) else one for one in _list(told)]
    notes = (f"found on the machine: {visible(str(said))}" for said in found)
    return [Difference("", None, None, note=note) for note in notes]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _compared(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if old is _ABSENT or new is _ABSENT:
        if old is None or new is None:
            return  # nothing said, and nothing said in words, are the same
        yield Difference(path, _shown(old), _shown(new))
    elif old == new and type(old) is type(new):
        return
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}, key=str):
            yield from _compared(
                _below(path, str(key)), old.get(key, _ABSENT), new.get(key, _ABSENT)
            )
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(path, old, new)
    elif isinstance(old, str) and isinstance(new, str):
        yield from _texts(path, old, new)
    elif not _equal(old, new):
        yield Difference(path, shown(old), shown(new))


def _lists(path: str, old: list[Any], new: list[Any]) -> Iterator[Difference]:
    key = entry_key(old, new, _KEYS)
    if key is not None:
        before = {str(item[key]): item for item in old}
        after = {str(item[key]): item for item in new}
        for name in sorted({*before, *after}):
            yield from _compared(
                f"{path}[{visible(name)}]", before.get(name, _ABSENT), after.get(name, _ABSENT)
            )
        if list(before) != list(after) and set(before) == set(after):
            yield Difference(
                path, ", ".join(map(visible, before)), ", ".join(map(visible, after)), note="order"
            )
        return
    if all(isinstance(item, str | int | float | bool) for item in (*old, *new)):
        yield _scalars(path, old, new)
        return
    for index in range(max(len(old), len(new))):
        yield from _compared(
            f"{path}[{index}]",
            old[index] if index < len(old) else _ABSENT,
            new[index] if index < len(new) else _ABSENT,
        )


def _scalars(path: str, old: list[Any], new: list[Any]) -> Difference:
    """A list of plain values; of a long one only what comes and goes."""
    before, after = shown(old), shown(new)
    gone = [item for item in old if item not in new]
    come = [item for item in new if item not in old]
    if len(before) + len(after) <= MOST_CHARACTERS or not (gone or come):
        return Difference(path, before, after)
    note = f"of {len(old)}, then {len(new)}"
    return Difference(path, shown(gone) if gone else None, shown(come) if come else None, note=note)


def entry_key(one: Sequence[Any], other: Sequence[Any], keys: Sequence[str]) -> str | None:
    """The first of these keys that tells the entries of two lists of objects apart; None if none does."""
    items = [*one, *other]
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    for key in keys:
        if all(isinstance(item.get(key), str | int) for item in items) and all(
            len({str(item[key]) for item in side}) == len(side) for side in (one, other)
        ):
            return key
    return None


def _texts(path: str, old: str, new: str) -> Iterator[Difference]:
    parsed = _structures(old, new)
    if parsed is not None:
        inner = list(_compared(path, *parsed))
        if inner:
            yield from inner
            return
        yield Difference(path, None, None, note="only its spelling differs, not what it says")
    elif ("\n" in old.strip() or "\n" in new.strip()) and UNKNOWN not in (old, new):
        yield Difference(path, None, None, lines(old, new))
    elif UNKNOWN in old or UNKNOWN in new or not old or not new:
        yield Difference(path, shown(old), shown(new))
    else:
        yield Difference(path, *pair(old, new))


def _structures(old: str, new: str) -> tuple[Any, Any] | None:
    """Both texts as what they hold, if both are JSON or YAML of objects or lists."""
    if len(old) > _LONGEST_PARSED or len(new) > _LONGEST_PARSED:
        return None
    sides = _parsed(old), _parsed(new)
    return sides if all(isinstance(side, dict | list) for side in sides) else None


def _parsed(text: str) -> Any:
    start = text.lstrip()[:1]
    if start in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    # A line of prose with a colon is YAML too; what is meant as YAML has lines, and no alias that could
    # blow it up.
    if "\n" not in text.strip() or ": " not in text + " " or "&" in text:
        return None
    try:
        return yaml.load(text, LOADER)  # noqa: S506  (a safe loader, in C where there is one)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def _equal(old: Any, new: Any) -> bool:
    # Dynamic providers get numbers as floats: 8.0 is 8.
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new))
    return numbers and bool(old == new)


def _below(path: str, key: str) -> str:
    name = key if _PLAIN_KEY.fullmatch(key) else f'["{visible(key)}"]'
    if not path or name.startswith("["):
        return path + name
    return f"{path}.{name}"


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _overlap(one: str, other: str) -> bool:
    return (
        one == other
        or one.startswith((f"{other}.", f"{other}["))
        or other.startswith((f"{one}.", f"{one}["))
    )


_PART = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)')


def _at(properties: Mapping[str, Any], path: str) -> Any:
    """The value at a path as Pulumi writes paths: `spec.ports[0]["a.b"]`."""
    value: Any = properties
    for quoted, index, plain in _PART.findall(path):
        if isinstance(value, Mapping):
            value = value.get(quoted or plain or index, _ABSENT)
        elif isinstance(value, Sequence) and not isinstance(value, str) and index:
            value = value[int(index)] if int(index) < len(value) else _ABSENT
        else:
            return value if value == SECRET else _ABSENT
        if value is _ABSENT:
            return _ABSENT
    return value
