"""What readers of resources share: inputs that differ, outputs that are texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from gpuclusters.drift.engine import Seen
from gpuclusters.drift.finding import Finding
from gpuclusters.review.diffing import differences
from gpuclusters.review.plan import Action, Resource, Step


class Reader(Protocol):
    """What a resource tells."""

    def __call__(self, seen: Seen, *, up: bool | None) -> Iterator[Finding]:
        """Findings, none where it is as declared."""


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
