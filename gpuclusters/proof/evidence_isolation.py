"""Evidence of isolation: what a hostile tenant would try, and what came of each attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

from gpuclusters.proof.evidence import About, Entry, cell, counted, sealed, share

KIND = "isolation"


class Outcome(StrEnum):
    """What came of an attempt."""

    REFUSED = "refused"
    """As it must be."""
    SUCCEEDED = "succeeded"
    """The isolation has a hole."""
    NOT_TRIED = "not-tried"
    """It could not be tried; `said` says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One attempt and its outcome."""

    area: str
    """For example `rights`, `pods`, `api`, `leases`, `network`."""
    tenant: str
    """Who tried."""
    attempt: str
    outcome: Outcome
    said: str
    """What the cluster answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationEvidence:
    """All findings of one run."""

    about: About
    findings: Sequence[Finding]
    kind: ClassVar[str] = KIND
    grouped_by: ClassVar[str] = "area"
    outcomes: ClassVar[type[Outcome]] = Outcome

    @property
    def title(self) -> str:
        """Of its table."""
        return f"isolation of {self.about.cluster}"

    @property
    def entries(self) -> Sequence[Entry]:
        """All attempts."""
        return [
            Entry(
                f.area,
                f.outcome.value,
                f.outcome is Outcome.REFUSED,
                f"{f.area}, {f.tenant}: {f.attempt} ({f.said})",
            )
            for f in self.findings
        ]

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of findings by outcome."""
        return counted((finding.outcome for finding in self.findings), Outcome)

    @property
    def holds(self) -> bool:
        """Whether every attempt was tried and refused."""
        return bool(self.findings) and all(f.outcome is Outcome.REFUSED for f in self.findings)

    @property
    def verdict(self) -> str:
        """How many attempts came out how, and whether isolation holds."""
        if self.holds:
            return f"{share(self.counts, {'refused': 'were refused'}, 'attempts')}: isolation holds"
        bad = {"succeeded": "succeeded", "not-tried": "could not be made"}
        shown = "does not hold" if self.counts["succeeded"] else "is not proven"
        return f"{share(self.counts, bad, 'attempts')}: isolation {shown}"

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        body = {
            "isolated": self.holds,
            "counts": dict(self.counts),
            "findings": [asdict(finding) for finding in self.findings],
        }
        return sealed(self.kind, self.about, body)

    def markdown(self) -> str:
        """For people; the first line is the verdict."""
        lines = self.about.heading(self.verdict)
        for area in dict.fromkeys(finding.area for finding in self.findings):
            lines += [f"## {area}", "", "| Tenant | Attempt | Outcome | The cluster said |"]
            lines += ["|---|---|---|---|"]
            lines += [
                f"| {f.tenant} | {cell(f.attempt)} | {_shown(f.outcome)} | {cell(f.said)} |"
                for f in self.findings
                if f.area == area
            ]
            lines.append("")
        return "\n".join(lines)


def faults(document: Mapping[str, Any]) -> list[str]:
    """What keeps the content of a document from showing isolation; empty if it does."""
    entries = document.get("findings")
    rows = entries if isinstance(entries, list) else []
    bad = [
        row for row in rows if not isinstance(row, Mapping) or row.get("outcome") != Outcome.REFUSED
    ]
    if bad or not rows:
        return [f"does not show isolation: {len(bad)} of {len(rows)} attempts not refused"]
    return []


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    return (
        f"the isolation of {document['cluster']} on {document['at']}: "
        f"{len(document['findings'])} attempts, all refused"
    )


def _shown(outcome: Outcome) -> str:
    return outcome.value if outcome is Outcome.REFUSED else f"**{outcome.value}**"
