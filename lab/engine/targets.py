"""Which resources a run is limited to."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from lab.engine import urn as urns
from lab.engine.request import Request


class Targets:
    """`--target`, `--exclude`, `--replace`: URNs, with `*` (no further than `::`) and `**`."""

    def __init__(self, request: Request) -> None:
        self._targets = _patterns(request.targets)
        self._excludes = _patterns(request.excludes)
        self._replace = _patterns(request.replace)
        self._named = (*request.targets, *request.excludes, *request.replace)

    @property
    def limited(self) -> bool:
        """Whether some resources are left out."""
        return bool(self._targets or self._excludes)

    def missing(self, known: Collection[str]) -> list[str]:
        """URNs that were asked for, but are of no resource; wildcards may match nothing."""
        return [urn for urn in self._named if "*" not in urn and urn not in known]

    def includes(self, urn: str) -> bool:
        """Whether the run is about this resource. Providers and the stack always are."""
        if not self.limited or urns.is_provider(urn) or urns.is_stack(urn):
            return True
        return self.names(urn)

    def names(self, urn: str) -> bool:
        """Whether the resource itself is meant, whatever it is."""
        if self._targets:
            return _matches(self._targets, urn)
        return not _matches(self._excludes, urn)

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
