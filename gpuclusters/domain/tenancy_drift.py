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
    patch: dict[str, Any] = {}
    for part in _WHOLE:
        mine, there = wanted.get(part), answered.get(part)
        if there is None or (part not in wanted and not _is_whole(wanted)):
            continue
        if mine is None:
            patch[part] = None
        elif extra := [key for key in there if key not in mine]:
            patch[part] = dict.fromkeys(extra)
    return patch


def _is_whole(wanted: Object) -> bool:
    return any(part in wanted for part in _WHOLE)


def _parts(wanted: Object) -> set[str]:
    content = {key for key in wanted if key not in ("apiVersion", "kind", "metadata", "status")}
    return content | (set(_WHOLE) if _is_whole(wanted) else set())
