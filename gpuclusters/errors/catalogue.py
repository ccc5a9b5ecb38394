"""All ids in one place, each once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain

from gpuclusters.errors.entry import Entry


class DuplicateIdError(Exception):
    """Two different errors have one id; rename the newer function or class."""


def _collected() -> Iterator[Entry]:
    # They read every module that raises: only who asks for the list waits for that.
    from gpuclusters.errors import findings, sites

    return chain(
        findings.fabric(),
        sites.classes(),
        findings.doctor(),
        findings.drift(),
        findings.listed(),
        findings.policy(),
    )


@cache
def catalogue() -> Mapping[str, Entry]:
    """Every id with what is told about it, sorted by category and id.

    Raises:
        DuplicateIdError: two errors of different kinds or places have one id.
    """
    found: dict[str, Entry] = {}
    for entry in _collected():
        known = found.get(entry.id)
        if known is None:
            found[entry.id] = entry
        elif (known.category, known.place) == (entry.category, entry.place):
            found[entry.id] = _both(known, entry)
        else:
            raise DuplicateIdError(f"{entry.id}: {known.place or known.category}, {entry.place}")
    order = list(type(next(iter(found.values())).category))
    entries = sorted(found.values(), key=lambda one: (order.index(one.category), one.id))
    return {entry.id: entry for entry in entries}


def _both(one: Entry, other: Entry) -> Entry:
    """One place that says several things under one id."""
    return Entry(
        one.id,
        one.category,
        tuple(dict.fromkeys((*one.causes, *other.causes))),
        tuple(dict.fromkeys((*one.fixes, *other.fixes))),
        tuple(dict.fromkeys((*one.messages, *other.messages))),
        one.place,
        one.source or other.source,
        one.warning and other.warning,
    )


def nearest(wrong: str) -> str | None:
    """The id that was probably meant."""
    near = difflib.get_close_matches(wrong.strip("[] ").lower(), catalogue(), n=1, cutoff=0.5)
    return near[0] if near else None
