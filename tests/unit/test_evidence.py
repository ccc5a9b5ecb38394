"""Evidence says what was tried, and notices when it was altered."""

from __future__ import annotations

import json

import pytest

from gpuclusters.domain.evidence import Evidence, Finding, Outcome, faults


def _evidence(*outcomes: Outcome) -> Evidence:
    findings = tuple(
        Finding("pods", "acme", f"attempt {n} | with a pipe", outcome, "no\nnewline")
        for n, outcome in enumerate(outcomes)
    )
    return Evidence(
        cluster="dev",
        stack="dev",
        at="2026-11-21T20:00:00Z",
        program="0.1.0",
        api_server="v1.36.3",
        findings=findings,
        remarks=("simulated",),
    )


def test_isolation_is_proven_when_every_attempt_was_tried_and_refused() -> None:
    evidence = _evidence(Outcome.REFUSED, Outcome.REFUSED)
    assert evidence.isolated
    assert faults(json.loads(json.dumps(evidence.document()))) == []
    assert evidence.markdown().startswith(
        "# Isolation of dev: every attempt was refused (2)\n\nTried on 2026-11-21T20:00:00Z"
    )


@pytest.mark.parametrize("hole", [Outcome.SUCCEEDED, Outcome.NOT_TRIED])
def test_one_attempt_that_was_not_refused_is_enough(hole: Outcome) -> None:
    evidence = _evidence(Outcome.REFUSED, hole)
    assert not evidence.isolated
    assert faults(evidence.document()) == [
        "does not show isolation: 1 of 2 attempts not refused",
    ]
    assert evidence.markdown().startswith("# Isolation of dev: NOT proven")
    assert f"| **{hole}** |" in evidence.markdown()


def test_nothing_tried_proves_nothing() -> None:
    assert not _evidence().isolated
    assert faults(_evidence().document()) == [
        "does not show isolation: 0 of 0 attempts not refused"
    ]


def test_a_file_that_was_altered_later_is_recognised() -> None:
    document = _evidence(Outcome.REFUSED, Outcome.SUCCEEDED).document()
    document["findings"][1]["outcome"] = "refused"
    assert faults(document) == ["was altered: its digest does not fit its content"]


@pytest.mark.parametrize("document", [None, [], {}, {"format": 2}])
def test_what_is_no_evidence_is_said_to_be_none(document: object) -> None:
    assert faults(document) == ["is no evidence of format 1"]


def test_a_cell_of_the_table_is_one_line_and_breaks_no_table() -> None:
    (row,) = [
        line for line in _evidence(Outcome.REFUSED).markdown().splitlines() if "attempt 0" in line
    ]
    assert row == "| acme | attempt 0 \\| with a pipe | refused | no newline |"
