"""Evidence of isolation: what was tried against a running cluster, when, and what came of it.

The document is JSON with a digest over itself, so that one that was altered later is recognised; Markdown is
rendered from it for people. It holds no token, no key and no address of a host.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

FORMAT = 1


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
class Evidence:
    """All findings of one run."""

    cluster: str
    stack: str
    at: str
    """RFC 3339."""
    program: str
    """Version of this program."""
    api_server: str
    """Version of the API server."""
    findings: Sequence[Finding]
    remarks: Sequence[str] = ()
    """What this run cannot show, for example because machines are simulated."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of findings by outcome."""
        found = Counter(finding.outcome.value for finding in self.findings)
        return {outcome.value: found[outcome.value] for outcome in Outcome}

    @property
    def isolated(self) -> bool:
        """Whether every attempt was tried and refused."""
        return bool(self.findings) and all(f.outcome is Outcome.REFUSED for f in self.findings)

    def document(self) -> dict[str, Any]:
        """As it is kept, with its digest."""
        body = {
            "format": FORMAT,
            "cluster": self.cluster,
            "stack": self.stack,
            "at": self.at,
            "program": self.program,
            "apiServer": self.api_server,
            "isolated": self.isolated,
            "counts": dict(self.counts),
            "remarks": list(self.remarks),
            "findings": [asdict(finding) for finding in self.findings],
        }
        return {**body, "sha256": digest(body)}

    def markdown(self) -> str:
        """For people; the first line is the verdict."""
        counts = self.counts
        verdict = (
            f"every attempt was refused ({counts['refused']})"
            if self.isolated
            else f"NOT proven: {counts['succeeded']} succeeded, {counts['not-tried']} not tried, "
            f"{counts['refused']} refused"
        )
        lines = [
            f"# Isolation of {self.cluster}: {verdict}",
            "",
            f"Tried on {self.at} against stack `{self.stack}`, API server {self.api_server}, "
            f"gpu-clusters {self.program}.",
            "",
        ]
        lines += [f"- {remark}" for remark in self.remarks] + ([""] if self.remarks else [])
        areas = list(dict.fromkeys(finding.area for finding in self.findings))
        for area in areas:
            lines += [f"## {area}", "", "| Tenant | Attempt | Outcome | The cluster said |"]
            lines += ["|---|---|---|---|"]
            lines += [
                f"| {f.tenant} | {_cell(f.attempt)} | {_shown(f.outcome)} | {_cell(f.said)} |"
                for f in self.findings
                if f.area == area
            ]
            lines.append("")
        return "\n".join(lines)


def digest(body: Mapping[str, Any]) -> str:
    """Of a document without its own digest."""
    kept = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def faults(document: Any) -> list[str]:
    """What keeps a document from being evidence of isolation; empty if it is."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        return [f"is no evidence of format {FORMAT}"]
    found = []
    if document.get("sha256") != digest(document):
        found.append("was altered: its digest does not fit its content")
    entries = document.get("findings")
    outcomes = [entry.get("outcome") for entry in entries] if isinstance(entries, list) else []
    bad = [outcome for outcome in outcomes if outcome != Outcome.REFUSED]
    if bad or not outcomes:
        found.append(f"does not show isolation: {len(bad)} of {len(outcomes)} attempts not refused")
    return found


def _shown(outcome: Outcome) -> str:
    return outcome.value if outcome is Outcome.REFUSED else f"**{outcome.value}**"


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 160 else flat[:159] + "…"
