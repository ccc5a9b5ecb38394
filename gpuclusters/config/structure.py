"""From a document to a model: what cannot be read, said for people, and what is left without it.

Pydantic checks a model as a whole. One wrong value would keep every rule from running, so what is wrong is
cut out and the rest is read again: a bad item leaves its list, a bad key leaves its section. The caller
learns what was cut, so that no rule judges what it cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from gpuclusters.config.explain import DISCRIMINATORS, KEY_MARK, explain, suggestion
from gpuclusters.config.fault import Flaw, Path

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """What could be read of a section."""

    model: M | None
    """None only if not even the sections that are right make a model."""
    flaws: tuple[Flaw, ...]
    broken: frozenset[str] = frozenset()
    """Keys of the section that hold a flaw, whole or in part."""
    cut: frozenset[str] = frozenset()
    """Keys whose value in the model is not the one that was written."""
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By list: where its remaining items stood in the document."""

    def original(self, path: Path) -> Path:
        """The path in the document of a path in the model."""
        match path:
            case (str(key), int(index), *rest) if key in self.kept:
                return (key, self.kept[key][index], *rest)
        return path


def read(
    model: type[M], document: Mapping[str, Any], lists: Sequence[str], stand_ins: Mapping[str, Any]
) -> Reading[M]:
    """Read a section, as far as it can be read.

    Args:
        model: the section's model.
        document: what was written.
        lists: keys whose items stand for themselves: one may be wrong without the others.
        stand_ins: valid values by required key, used where what was written is not; never shown.
    """
    try:
        return Reading(model.model_validate(document), ())
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    located = [(_path(entry["loc"], document), entry) for entry in errors]
    unknown = {
        path: suggestion(path, model, document)
        for path, entry in located
        if entry["type"] == "extra_forbidden"
    }
    # A mistyped key leaves the right one missing: one mistake, said once.
    meant = {(*path[:-1], near) for path, near in unknown.items() if near}
    said = [(p, e) for p, e in located if not (e["type"] == "missing" and p in meant)]
    flaws = tuple(explain(path, entry, document, model) for path, entry in said)
    needless = [path for path, near in unknown.items() if near is None]
    wrong = [path for path, _ in located if path not in needless]
    broken = frozenset(str(path[0]) for path in wrong)
    rest, kept = _without(wrong, _pruned(document, needless), lists)
    cut = frozenset(key for key in broken if key not in kept)
    filled = {**{key: value for key, value in stand_ins.items() if key not in rest}, **rest}
    try:
        return Reading(model.model_validate(filled), flaws, broken, cut, kept)
    except ValidationError:
        return Reading(None, flaws, broken, cut, kept)


def _pruned(document: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """The document without keys that nobody knows and that stand for no other."""

    def copy(value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            inside = {key: (*path, key) for key in value}
            return {key: copy(value[key], at) for key, at in inside.items() if at not in paths}
        if isinstance(value, list | tuple):
            return [copy(item, (*path, position)) for position, item in enumerate(value)]
        return value

    pruned: dict[str, Any] = copy(document, ())
    return pruned


def _without(
    paths: Sequence[Path], document: Mapping[str, Any], lists: Sequence[str]
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The document without what is wrong, and which items of lists are left."""
    rest = dict(document)
    bad_items: dict[str, set[int]] = {}
    for path in paths:
        match path:
            case (str(key), int(index), *_) if key in lists:
                bad_items.setdefault(key, set()).add(index)
            case (key, *_):
                rest.pop(str(key), None)
    kept: dict[str, tuple[int, ...]] = {}
    for key, bad in bad_items.items():
        if key in rest:
            kept[key] = tuple(n for n in range(len(rest[key])) if n not in bad)
            rest[key] = [rest[key][n] for n in kept[key]]
    return rest, kept


def _path(loc: Sequence[str | int], document: Any) -> Path:
    """Where an error is in the document: without the tags of unions and pydantic's own marks."""
    path: list[str | int] = []
    current = document
    tagged: object = document  # a section as a whole has no variants, whatever keys stand in it
    for part in loc:
        if isinstance(current, Mapping):
            tags = [current.get(name) for name in DISCRIMINATORS]
            if part in tags and tagged is not current:
                tagged = current  # the first part below a variant is its tag
                continue
            if part == KEY_MARK and part not in current:
                continue
            current = current.get(part)
        elif isinstance(current, list | tuple):
            if not isinstance(part, int):
                continue
            current = current[part] if part < len(current) else None
        elif part == KEY_MARK:
            continue
        else:
            current = None
        path.append(part)
    return tuple(path)
