"""Evidence that GPUs work: every check of a ladder of proofs, with its numbers.

The ladder is not only that of an rke2 cluster: a level is a name, a check has a subject, an outcome and
what was said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuclusters.proof import checks as proof
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.proof.evidence import About, Entry, cell, counted, sealed, share

KIND = "proof"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofEvidence:
    """All checks of one run."""

    about: About
    level: str
    """Up to which level was to be shown."""
    checks: Sequence[Check]
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Driver and resources of each node as they were."""
    images: Mapping[str, str] = field(default_factory=dict)
    """By test, by digest."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Digest of each program that this program brought, by file name."""

    kind: ClassVar[str] = KIND
    grouped_by: ClassVar[str] = "level"
    outcomes: ClassVar[type[Outcome]] = Outcome

    @property
    def title(self) -> str:
        """Of its table."""
        return f"{self.kind} of {self.about.cluster}, {self.level}"

    @property
    def entries(self) -> Sequence[Entry]:
        """All checks."""
        return [
            Entry(
                c.level,
                c.outcome.value,
                c.outcome is Outcome.PASSED,
                f"{c.level} {c.subject}: {c.what} ({c.said})",
            )
            for c in self.checks
        ]

    @property
    def explained(self) -> Mapping[str, Any]:
        """What a document says beside its checks, for whoever does not know the levels."""
        return {}

    def heading_of(self, level: str) -> str:
        """Of the part of a level, for people."""
        return level

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of checks by outcome."""
        return counted((check.outcome for check in self.checks), Outcome)

    @property
    def holds(self) -> bool:
        """Whether every check passed."""
        return proof.proven(self.checks)

    @property
    def verdict(self) -> str:
        """How many checks came out how, and whether the level holds."""
        if self.holds:
            return f"{share(self.counts, {'passed': 'passed'}, 'checks')}: {self.level} holds"
        bad = {"failed": "failed", "not-tried": "could not be made"}
        return f"{share(self.counts, bad, 'checks')}: {self.level} is not proven"

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        body = {
            "level": self.level,
            "proven": self.holds,
            "counts": dict(self.counts),
            "nodes": {name: dict(facts) for name, facts in self.nodes.items()},
            "images": dict(self.images),
            "programs": dict(self.programs),
            "checks": [check.document() for check in self.checks],
            **self.explained,
        }
        return sealed(self.kind, self.about, body)

    def markdown(self) -> str:
        """For people; the first line is the verdict."""
        lines = self.about.heading(self.verdict)
        if self.nodes:
            lines += ["## Nodes", ""]
            lines += [
                f"- {name}: "
                + ", ".join(f"{key} {value or 'unknown'}" for key, value in facts.items())
                for name, facts in self.nodes.items()
            ]
            lines.append("")
        for level in dict.fromkeys(check.level for check in self.checks):
            lines += [f"## {self.heading_of(level)}", ""]
            lines += ["| About | Check | Outcome | Found |", "|---|---|---|---|"]
            lines += [
                f"| {cell(c.subject)} | {cell(c.what)} | {_shown(c.outcome)} | {cell(c.said)} |"
                for c in self.checks
                if c.level == level
            ]
            lines.append("")
        if self.images:
            lines += ["## Images", ""]
            lines += [f"- {test}: `{image}`" for test, image in self.images.items()] + [""]
        return "\n".join(lines)


def faults(document: Mapping[str, Any]) -> list[str]:
    """What keeps the content of a document from showing that GPUs work; empty if it does."""
    entries = document.get("checks")
    rows = entries if isinstance(entries, list) else []
    bad = [
        row for row in rows if not isinstance(row, Mapping) or row.get("outcome") != Outcome.PASSED
    ]
    if bad or not rows:
        return [f"does not show that GPUs work: {len(bad)} of {len(rows)} checks not passed"]
    level = document.get("level")
    if not any(row.get("level") == level for row in rows):
        return [f"does not show {level}: no check of this level is in it"]
    return []


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    return (
        f"that the GPUs of {document['cluster']} worked on {document['at']}: {document['level']}, "
        f"{len(document['checks'])} checks, all passed"
    )


def _shown(outcome: Outcome) -> str:
    return outcome.value if outcome is Outcome.PASSED else f"**{outcome.value}**"
