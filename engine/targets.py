"""Which resources a run is limited to."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from engine import urn as urns
from engine.graph import needs
from engine.request import Request
from engine.state import ResourceState


class Targets:
    """`--target`, `--exclude`, `--replace`: URNs, with `*` (no further than `::`) and `**`.

    With `--target-dependents` what needs a target is meant too. A program registers what is needed
    first, so one look at each is enough.
    """

    def __init__(self, request: Request) -> None:
        self._targets = _patterns(request.targets)
        self._excludes = _patterns(request.excludes)
        self._replace = _patterns(request.replace)
        self._named = (*request.targets, *request.excludes, *request.replace)
        self._with_dependents = request.target_dependents
        self._meant: set[str] = set()

    @property
    def limited(self) -> bool:
        """Whether some resources are left out."""
        return bool(self._targets or self._excludes)

    def missing(self, known: Collection[str]) -> list[str]:
        """URNs that were asked for, but are of no resource; wildcards may match nothing."""
        return [urn for urn in self._named if "*" not in urn and urn not in known]

    def includes(self, state: ResourceState) -> bool:
        """Whether the run is about this resource. Providers and the stack always are."""
        named = self.names(state)
        return named or urns.is_provider(state.urn) or urns.is_stack(state.urn)

    def names(self, state: ResourceState) -> bool:
        """Whether the resource itself is meant, whatever it is."""
        if not self.limited:
            return True
        meant = self.lists(state.urn) or (
            self._with_dependents and not self._meant.isdisjoint(needs(state))
        )
        if meant:
            self._meant.add(state.urn)
        return meant if self._targets else not meant

    def lists(self, urn: str) -> bool:
        """Whether the URN is among those that the user gave: as a target, or to be excluded."""
        return _matches(self._targets or self._excludes, urn)

    def is_to_be_replaced(self, urn: str) -> bool:
        """Whether the user wants a new object."""
        return _matches(self._replace, urn)


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_translate(text)) for text in texts)


def _translate(text: str) -> str:
    if "*" not in text:
        return re.escape(text) + r"\Z"
    parts = re.split(r"(\*\*|\*)", text)
    glob = {"**": ".*", "*": r"[^:$]*"}
    return "".join(glob.get(part, re.escape(part)) for part in parts) + r"\Z"


def _matches(patterns: Sequence[re.Pattern[str]], urn: str) -> bool:
    return any(p.match(urn) for p in patterns)
