"""Whether a live object is what was applied, and which foreign fields beside it must go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]

# Which parts of an object are whole, so that nothing may stand beside what we say.
_WHOLE = ("spec", "specs")


def drifted(wanted: Object, live: Object, answered: Object | None) -> bool:
    """Whether `live` must be applied again.

    Args:
        wanted: what is to be applied.
        live: what is there.
        answered: what the server made of `wanted` when it was last applied, with its defaults filled
            in; None if that is not known.
    """
    for section in ("labels", "annotations"):
        there = live["metadata"].get(section) or {}
        if any(there.get(k) != v for k, v in (wanted["metadata"].get(section) or {}).items()):
            return True
    expected = wanted if answered is None else answered
    return any(live.get(part) != expected.get(part) for part in _parts(wanted))


def foreign_fields(wanted: Object, answered: Object) -> dict[str, Any]:
    """A merge patch that removes what others wrote beside us, empty if there is nothing.

    Server-side apply leaves the fields of other managers alone; another part of a policy's or a
    quota's spec could widen it.
    """
    if not _is_whole(wanted):
        return {}
    patch: dict[str, Any] = {}
    for part in _WHOLE:
        mine, there = wanted.get(part), answered.get(part)
        if there is not None and mine is None:
            patch[part] = None
        elif mine is not None and (extra := _extra(mine, there)):
            patch[part] = extra
    return patch


def _extra(mine: Any, there: Any) -> dict[str, Any]:
    """Keys that are ours at no depth; lists belong to one manager as a whole."""
    if not isinstance(mine, Mapping) or not isinstance(there, Mapping):
        return {}
    found: dict[str, Any] = {key: None for key in there if key not in mine}
    for key in mine:
        if nested := _extra(mine[key], there.get(key)):
            found[key] = nested
    return found


def _is_whole(wanted: Object) -> bool:
    return any(part in wanted for part in _WHOLE)


def _parts(wanted: Object) -> set[str]:
    content = {key for key in wanted if key not in ("apiVersion", "kind", "metadata", "status")}
    return content | (set(_WHOLE) if _is_whole(wanted) else set())
