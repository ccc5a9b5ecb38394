"""Sentences in which providers tell of drift, and their names.

A provider says in `drift` how a machine differs. The words are ours (`gpuclusters/domain`), so that their
kind is known by them; a test holds sentences of the domain against the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from gpuclusters.drift.engine import Seen
from gpuclusters.drift.finding import Finding
from gpuclusters.review.diffing import differences
from gpuclusters.review.plan import Action, Resource, Step


class Reader(Protocol):
    """What a resource tells."""

    def __call__(self, seen: Seen, *, up: bool | None) -> Iterator[Finding]:
        """Findings, none where it is as declared."""


Rules = Sequence[tuple[re.Pattern[str], str]]
"""Kind by the words; the first that fits. A group `what` names the file, function or unit."""


def rules_of(*pairs: tuple[str, str]) -> Rules:
    """Patterns and kinds; the last one has to fit everything."""
    return tuple((re.compile(pattern), kind) for pattern, kind in pairs)


_WANTED: Final[Mapping[str, str]] = {
    "unit-changed": "enabled and active",
}


def told(
    seen: Seen, rules: Rules, *, up: bool | None, fallback: str, declared: str = ""
) -> Iterator[Finding]:
    """A finding for each sentence of `drift`; a resource that is gone has one that says so."""
    if seen.new is None:
        last = rules[-1][1]
        yield Finding(
            last,
            seen.host,
            fallback,
            "as made by `up`",
            "nothing of it is there",
            up=up,
            urn=seen.urn,
        )
        return
    for line in dict.fromkeys(texts(seen.new, "drift")):
        kind, what = named(rules, line)
        yield Finding(
            kind,
            seen.host,
            what or fallback,
            _WANTED.get(kind, declared or "as left by `up`"),
            line,
            up=up,
            urn=seen.urn,
        )


def named(rules: Rules, line: str) -> tuple[str, str]:
    """Kind and subject of a provider's sentence."""
    for pattern, kind in rules:
        found = pattern.search(line)
        if found:
            return kind, str(found.groupdict().get("what") or "")
    raise AssertionError(f"no rule fits {line!r}")


def property_lines(seen: Seen) -> tuple[str, ...]:
    """How the inputs differ, a line each: what is there in the place of what was declared."""
    if seen.new is None:
        return ()
    step = Step(Action.UPDATE, seen.urn, seen.old, seen.new)
    lines: list[str] = []
    for one in differences(step):
        if one.path in ("", "drift") and one.before is None and one.after is None:
            continue
        if one.lines:
            lines += [f"{one.path}: {line}" for line in one.lines]
        else:
            after = "nothing" if one.after is None else one.after
            before = "nothing" if one.before is None else one.before
            lines.append(f"{one.path}: {after} instead of {before}")
    return tuple(lines)


def texts(resource: Resource | None, key: str) -> list[str]:
    """An output that is a list of texts."""
    value: Any = resource.outputs.get(key) if resource is not None else None
    if not isinstance(value, list):
        return []
    return [text for text in value if isinstance(text, str)]
