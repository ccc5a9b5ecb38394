"""The report as JSON: the same bytes for the same findings."""

from __future__ import annotations

from typing import Any

from gpuclusters.drift.finding import Finding
from gpuclusters.drift.kind import Severity
from gpuclusters.drift.report import Report

FORMAT = 1


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
        "title": finding.kind.title,
        "declared": finding.declared,
        "found": finding.found,
        "details": list(finding.details),
        "changed_by": finding.by or None,
        "up_puts_it_back": finding.up,
        "do": finding.remedy,
        "urn": finding.urn or None,
    }
