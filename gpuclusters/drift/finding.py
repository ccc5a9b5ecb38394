"""One finding of drift, and one thing that could not be looked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from gpuclusters.core import codes
from gpuclusters.core.codes import Code, Severity
from gpuclusters.review.secrets import masked_text
from gpuclusters.review.text import cut, visible

CODES: Final = {code: known for code, known in codes.listed().items() if known.severity}
"""Of what is looked for as drift."""
_LONGEST = 400
_MOST_LINES = 12
_PLACES = re.compile(r"\{(where|what|declared|found)\}")


class Group(StrEnum):
    """Where a reader looks for it. The order is that of the report."""

    HOSTS = "hosts"
    CLUSTER = "cluster"
    TENANTS = "tenants"
    HELM = "helm"
    STACK = "stack"


_GROUPS: Final = {
    **dict.fromkeys(("gpu", "gpu-operator", "mig", "node"), Group.CLUSTER),
    "tenancy": Group.TENANTS,
    "tenant": Group.TENANTS,
    "helm": Group.HELM,
    "stack": Group.STACK,
}
"""By area of a code; the others are about machines."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was declared."""

    id: str
    """Its code."""
    where: str
    """The machine, node, namespace or tenant."""
    what: str
    """The file, function, partition, object or resource."""
    declared: str = ""
    """What was declared, in words; empty where it is the absence of something."""
    found: str = ""
    """What is there, in words."""
    by: str = ""
    """Who changed it, where that is known: the field manager, and when."""
    up: bool | None = None
    """Whether `gpu-clusters up --refresh` puts it back; None where that is not known."""
    do: str = ""
    """Instead of the code's own remedy."""
    urn: str = ""
    """Of the resource that declares it, where there is one."""
    details: tuple[str, ...] = ()
    """Differences, one a line, where there are several."""

    @property
    def known(self) -> Code:
        """What is known of its code."""
        return codes.listed()[self.id]

    @property
    def title(self) -> str:
        """What is wrong, in a few words."""
        return self.known.means.rstrip(".")

    @property
    def severity(self) -> Severity:
        """How bad it is. What only a refresh finds is critical."""
        return self.known.severity or Severity.CRITICAL

    @property
    def group(self) -> Group:
        """Where a reader looks for it."""
        return _GROUPS.get(self.id.partition(".")[0], Group.HOSTS)

    @property
    def remedy(self) -> str:
        """What puts it back."""
        if self.up:
            return "`gpu-clusters up --refresh`"
        # Not `format`, and at once: what a finding names may have braces in it.
        return self.do or _PLACES.sub(lambda place: str(getattr(self, place[1])), self.known.do)

    @property
    def order(self) -> tuple[int | str, ...]:
        """Worst first, then by place; the same for the same findings in whatever order they came."""
        place = (self.where, self.id, self.what, self.declared, self.found, self.urn)
        return (list(Group).index(self.group), self.severity.rank, *place)


@dataclass(frozen=True, slots=True, order=True)
class Unseen:
    """Something that was not looked at. Whether it drifted nobody knows."""

    what: str
    why: str
    do: str = ""


def of_lines(
    id_: str, where: str, what: str, declared: str, lines: Sequence[str], **more: Any
) -> Finding:
    """A finding of one difference, or of several that are its details."""
    if len(lines) == 1:
        return Finding(id_, where, what, declared, lines[0], **more)
    rest = len(lines) - _MOST_LINES
    details = (*lines[:_MOST_LINES], *([f"… and {rest} more"] if rest > 0 else ()))
    found = f"{len(lines)} differences"
    return Finding(id_, where, what, declared, found, details=details, **more)


def harmless(finding: Finding) -> Finding:
    """With no control character, no secret, and nothing longer than can be read."""
    names = ("where", "what", "declared", "found", "by", "do")
    cleaned: dict[str, Any] = {name: clean(getattr(finding, name)) for name in names}
    return replace(finding, details=tuple(map(clean, finding.details)), **cleaned)


def clean(text: str) -> str:
    """A text of unknown origin as it may be shown: one line, no secret."""
    return cut(visible(masked_text(text)), _LONGEST)
