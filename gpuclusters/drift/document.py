"""The report as JSON, and back: the same bytes for the same findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuclusters.core import codes
from gpuclusters.core.codes import Severity
from gpuclusters.drift.finding import Finding, Unseen
from gpuclusters.drift.report import Looked, Report, report
from gpuclusters.review.plan import Action

FORMAT = 1


class DocumentError(Exception):
    """JSON that is no report of ours. One sentence."""


def document(report: Report) -> dict[str, Any]:
    """For programs. Keys are added in later versions, never taken away."""
    return {
        "format": FORMAT,
        "stack": report.stack,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "counts": {severity.value: report.count(severity) for severity in Severity},
        "ignored": report.ignored,
        "findings": [_finding(finding) for finding in report.findings],
        "not_looked_at": [
            {"what": unseen.what, "why": unseen.why, "do": unseen.do} for unseen in report.unseen
        ],
        "looked_at": {looked.what: looked.count for looked in report.looked},
        "up_would": (
            [{"action": action.value, "resource": name} for action, name in report.plan]
            if report.planned
            else None
        ),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "group": finding.group.value,
        "where": finding.where,
        "what": finding.what,
        "title": finding.title,
        "declared": finding.declared,
        "found": finding.found,
        "details": list(finding.details),
        "changed_by": finding.by or None,
        "up_puts_it_back": finding.up,
        "do": finding.remedy,
        "urn": finding.urn or None,
    }


def report_of(value: Any, *, ignore: Sequence[str] = ()) -> Report:
    """The report that a document is of; its texts are made harmless again.

    Raises:
        DocumentError: it is of something else, or of another version.
    """
    if not isinstance(value, Mapping) or "findings" not in value or "not_looked_at" not in value:
        raise DocumentError("it is not what `gpu-clusters drift --json` prints")
    if value.get("format") != FORMAT:
        raise DocumentError(f"it is of format {value.get('format')}, this reads format {FORMAT}")
    try:
        made = report(
            str(value["stack"]),
            [_finding_of(entry) for entry in value["findings"]],
            [Unseen(str(e["what"]), str(e["why"]), str(e["do"])) for e in value["not_looked_at"]],
            [Looked(str(what), int(count)) for what, count in value["looked_at"].items()],
            ignore=ignore,
        )
        plan = value["up_would"]
        steps = [(Action(entry["action"]), str(entry["resource"])) for entry in plan or ()]
        ignored = made.ignored + int(value["ignored"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DocumentError(f"it is not whole ({type(error).__name__}: {error})") from error
    return replace(made, ignored=ignored, plan=tuple(sorted(steps)), planned=plan is not None)


def _finding_of(entry: Mapping[str, Any]) -> Finding:
    if entry["id"] not in codes.listed():
        raise ValueError(f"no code {entry['id']!r}; it may be of a later version")
    up = entry["up_puts_it_back"]
    return Finding(
        str(entry["id"]),
        str(entry["where"]),
        str(entry["what"]),
        str(entry["declared"]),
        str(entry["found"]),
        str(entry["changed_by"] or ""),
        up if isinstance(up, bool) else None,
        str(entry["do"]),
        str(entry["urn"] or ""),
        tuple(str(line) for line in entry["details"]),
    )
