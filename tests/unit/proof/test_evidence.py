"""Evidence says what was tried, and notices when it was altered."""

import json

import pytest

from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.proof.evidence import (
    ISOLATION,
    PROOF,
    About,
    Evidence,
    faults,
    headline,
)

ABOUT = About(
    cluster="dev",
    stack="dev",
    at="2026-11-21T20:00:00Z",
    program="0.1.0",
    api_server="v1.36.3",
    remarks=("simulated",),
)


def _evidence(*outcomes: Outcome) -> Evidence:
    attempts = tuple(
        Check("pods", "acme", f"attempt {n} | with a pipe", outcome, "no\nnewline")
        for n, outcome in enumerate(outcomes)
    )
    return Evidence(kind=ISOLATION, about=ABOUT, checks=attempts)


def test_isolation_is_proven_when_every_attempt_was_tried_and_refused() -> None:
    evidence = _evidence(Outcome.PASSED, Outcome.PASSED)
    assert evidence.holds
    assert faults(json.loads(json.dumps(evidence.document()))) == []
    assert evidence.markdown().startswith(
        "# dev: 2 of 2 attempts were refused: isolation holds\n\nTried on 2026-11-21T20:00:00Z"
    )


@pytest.mark.parametrize(
    ("hole", "verdict"),
    [
        (Outcome.FAILED, "1 of 2 attempts succeeded: isolation does not hold"),
        (Outcome.NOT_TRIED, "1 of 2 attempts could not be made: isolation is not proven"),
    ],
)
def test_one_attempt_that_was_not_refused_is_enough(hole: Outcome, verdict: str) -> None:
    evidence = _evidence(Outcome.PASSED, hole)
    assert not evidence.holds
    assert faults(evidence.document()) == [
        "does not show isolation: 1 of 2 attempts not refused",
    ]
    assert evidence.markdown().startswith(f"# dev: {verdict}\n")
    assert f"| **{ISOLATION.outcomes[hole]}** |" in evidence.markdown()


def test_the_verdict_counts_every_outcome() -> None:
    mixed = _evidence(
        Outcome.PASSED,
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.NOT_TRIED,
    )
    assert mixed.verdict == (
        "2 of 4 attempts succeeded, 1 could not be made: isolation does not hold"
    )
    failed = _proof(Outcome.PASSED, Outcome.FAILED, Outcome.NOT_TRIED)
    assert failed.verdict == "1 of 3 checks failed, 1 could not be made: L1 is not proven"


def test_nothing_tried_proves_nothing() -> None:
    assert not _evidence().holds
    assert _evidence().verdict == "0 of 0 attempts succeeded: isolation is not proven"
    assert faults(_evidence().document()) == [
        "does not show isolation: 0 of 0 attempts not refused"
    ]


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (None, "is no evidence: it is no JSON object with a format"),
        ([], "is no evidence: it is no JSON object with a format"),
        ({}, "is no evidence: it is no JSON object with a format"),
        ({"format": "1"}, "is no evidence: it is no JSON object with a format"),
        ({"format": True}, "is no evidence: it is no JSON object with a format"),
        ({"format": 0}, "is no evidence of format 1 (it says 0)"),
        (
            {"format": 2},
            "is no evidence of format 1 (it says 2); a newer gpu-clusters may read it",
        ),
        (
            {"format": 1, "kind": "x"},
            "is evidence of another kind ('x'); this version knows isolation, proof, ladder",
        ),
    ],
)
def test_what_is_no_evidence_is_said_to_be_none(document: object, fault: str) -> None:
    assert faults(document) == [fault]


def _proof(*outcomes: Outcome, level: str = "L1") -> Evidence:
    checks = [
        Check("L1", "n0", "multiplies", outcome, "260 | TFLOPS", {"tflops": 260.0})
        for outcome in outcomes
    ]
    return Evidence(
        kind=PROOF,
        about=ABOUT,
        level=level,
        checks=checks,
        nodes={"n0": {"driver": "580.1"}},
        images={"matmul": "x@sha256:1"},
    )


def test_gpus_are_proven_when_every_check_passed() -> None:
    evidence = _proof(Outcome.PASSED, Outcome.PASSED)
    document = json.loads(json.dumps(evidence.document()))
    assert evidence.holds
    assert faults(document) == []
    assert headline(document) == (
        "that the GPUs of dev worked on 2026-11-21T20:00:00Z: L1, 2 checks, all passed"
    )
    text = evidence.markdown()
    assert text.startswith("# dev: 2 of 2 checks passed: L1 holds\n")
    assert "- n0: driver 580.1" in text
    assert "| n0 | multiplies | passed | 260 \\| TFLOPS |" in text
    assert "- matmul: `x@sha256:1`" in text


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.NOT_TRIED])
def test_one_check_that_did_not_pass_is_enough(outcome: Outcome) -> None:
    evidence = _proof(Outcome.PASSED, outcome)
    assert faults(evidence.document()) == ["does not show that GPUs work: 1 of 2 checks not passed"]
    assert evidence.markdown().startswith("# dev: 1 of 2 checks ")


def test_a_proof_shows_the_level_that_it_was_for_or_nothing() -> None:
    assert faults(_proof().document()) == ["does not show that GPUs work: 0 of 0 checks not passed"]
    assert faults(_proof(Outcome.PASSED, level="L4").document()) == [
        "does not show L4: no check of this level is in it"
    ]


def test_evidence_of_one_kind_is_none_of_the_other() -> None:
    document = _proof(Outcome.PASSED).document()
    document["kind"] = "isolation"
    assert faults(document) == [
        "was altered: its digest does not fit its content",
        "does not show isolation: 0 of 0 attempts not refused",
    ]


def test_a_cell_of_the_table_is_one_line_and_breaks_no_table() -> None:
    (row,) = [
        line for line in _evidence(Outcome.PASSED).markdown().splitlines() if "attempt 0" in line
    ]
    assert row == "| acme | attempt 0 \\| with a pipe | refused | no newline |"
