"""Evidence says what was tried, and notices when it was altered."""

import json

import pytest

from gpuclusters.proof import checks
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.proof.evidence import ISOLATION, PROOF, About, Evidence, faults, headline
from tests.fixtures.tables import beside

CASES = beside(__file__, "evidence.yaml")
ABOUT = About(
    cluster="dev",
    stack="dev",
    at="2026-11-21T20:00:00Z",
    program="0.1.0",
    api_server="v1.36.3",
    remarks=("simulated",),
)
OUTCOMES = {"+": Outcome.PASSED, "-": Outcome.FAILED, "?": Outcome.NOT_TRIED}


def _isolation(outcomes: str) -> Evidence:
    attempts = tuple(
        Check("pods", "acme", f"attempt {n} | with a pipe", OUTCOMES[outcome], "no\nnewline")
        for n, outcome in enumerate(outcomes)
    )
    return Evidence(kind=ISOLATION, about=ABOUT, checks=attempts)


def _proof(outcomes: str, level: str = "L1") -> Evidence:
    tried = [
        Check("L1", "n0", "multiplies", OUTCOMES[outcome], "260 | TFLOPS", {"tflops": 260.0})
        for outcome in outcomes
    ]
    nodes, images = {"n0": {"driver": "580.1"}}, {"matmul": "x@sha256:1"}
    return Evidence(kind=PROOF, about=ABOUT, level=level, checks=tried, nodes=nodes, images=images)


@pytest.mark.parametrize("row", CASES["verdicts"], ids=lambda row: row["verdict"])
def test_one_outcome_that_is_not_good_or_none_at_all_proves_nothing(row: dict[str, str]) -> None:
    evidence = {"isolation": _isolation, "proof": _proof}[row["kind"]](row["outcomes"])
    verdict, fault = row["verdict"], row.get("fault")
    claim, shown = (
        ("isolation", "attempts not refused")
        if evidence.kind == ISOLATION
        else ("that GPUs work", "checks not passed")
    )
    assert evidence.verdict == verdict
    assert evidence.holds == (not fault)
    expected = [f"does not show {claim}: {fault} {shown}"] if fault else []
    assert faults(json.loads(json.dumps(evidence.document()))) == expected
    text = evidence.markdown()
    assert text.startswith(f"# dev: {verdict}\n\nTried on 2026-11-21T20:00:00Z")
    for check in evidence.checks:
        said = evidence.kind.outcomes[check.outcome]
        assert f"| {said} |" in text or f"| **{said}** |" in text


@pytest.mark.parametrize(("document", "fault"), CASES["none"])
def test_what_is_no_evidence_is_said_to_be_none(document: object, fault: str) -> None:
    assert faults(document) == [fault]


def test_a_proof_says_what_it_shows_of_which_nodes_and_images() -> None:
    evidence = _proof("++")
    assert headline(evidence.document()) == (
        "that the GPUs of dev worked on 2026-11-21T20:00:00Z: L1, 2 checks, all passed"
    )
    text = evidence.markdown()
    assert "- n0: driver 580.1" in text
    assert "| n0 | multiplies | passed | 260 \\| TFLOPS |" in text
    assert "- matmul: `x@sha256:1`" in text
    assert faults(_proof("+", level="L4").document()) == [
        "does not show L4: no check of this level is in it"
    ]


def test_checks_are_counted_by_level_and_what_did_not_pass_is_named() -> None:
    evidence = _proof("+?")
    assert evidence.counts() == evidence.counts("L1") == {"passed": 1, "failed": 0, "not-tried": 1}
    assert set(evidence.counts("L2").values()) == {0}
    assert checks.faults(evidence.checks) == ["L1 n0: multiplies: not-tried (260 | TFLOPS)"]
    assert not checks.proven([])


def test_evidence_of_one_kind_is_none_of_the_other() -> None:
    document = _proof("+").document()
    document["kind"] = "isolation"
    assert faults(document) == [
        "was altered: its digest does not fit its content",
        "does not show isolation: 0 of 0 attempts not refused",
    ]


def test_a_cell_of_the_table_is_one_line_and_breaks_no_table() -> None:
    (row,) = [line for line in _isolation("+").markdown().splitlines() if "attempt 0" in line]
    assert row == "| acme | attempt 0 \\| with a pipe | refused | no newline |"
