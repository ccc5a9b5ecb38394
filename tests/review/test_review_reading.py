"""What a review takes for a plan, and what it refuses: one clear sentence each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.review.plan import Action, PlanError, read
from tests.review.catalogue import handmade, loading
from tests.review.reviewing import plan_of

RECORDED = Path(__file__).parents[1] / "engine/reference/scenarios"
HOST = "gpu-clusters:gpu:HostFile"


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        read(text, "plan.json")
    return str(caught.value)


def plans() -> Iterator[Any]:
    for file in sorted(RECORDED.glob("*/expected.jsonl")):
        for step in map(json.loads, file.read_text().splitlines()):
            if "plan" in step:
                yield pytest.param(step["plan"], id=f"{file.parent.name}-{step['step']}")


@pytest.mark.parametrize("document", list(plans()))
def test_every_plan_that_the_real_cli_printed_can_be_read(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    if any(d.get("severity") == "error" for d in document.get("diagnostics", [])):
        assert "preview that failed" in refusal(text)
        return
    if not document.get("steps"):
        assert "lists no steps" in refusal(text)
        return
    plan = read(text, "plan.json")
    assert plan.project == "refs"
    assert len(plan.steps) >= 1


def events(document: dict[str, Any], **summary: Any) -> str:
    lines: list[dict[str, Any]] = [{"preludeEvent": {"config": document["config"]}}]
    for step in document["steps"]:
        metadata = {k: step.get(k) for k in ("op", "urn", "detailedDiff")}
        metadata |= {"old": step.get("oldState"), "new": step.get("newState"), "type": "x"}
        lines.append({"resourcePreEvent": {"metadata": metadata, "planning": True}})
    ending = {
        "resourceChanges": document["changeSummary"],
        "isPreview": True,
        "result": "succeeded",
    }
    lines.append({"summaryEvent": {**ending, **summary}})
    lines.append({"cancelEvent": {}})
    return "\n".join(
        json.dumps({"sequence": n, "timestamp": 0, **line}) for n, line in enumerate(lines)
    )


def test_events_line_by_line_say_the_same_as_the_document() -> None:
    document = loading.document("scale-in")
    assert read(events(document), "x").steps == plan_of(document).steps


def test_lines_before_the_json_and_a_byte_order_mark_do_not_matter() -> None:
    text = json.dumps(handmade.plan())
    assert read(f"Embedded engine: …\n{text}", "x").stack == "prod"
    assert read(f"\ufeff{text}\n", "x").stack == "prod"


def test_fields_of_newer_releases_are_passed_over() -> None:
    document = loading.document("tenant-added")
    document["novelty"] = {"a": 1}
    for step in document["steps"]:
        step["novelty"] = [1, 2]
        (step.get("newState") or {})["novelty"] = "x"
    assert plan_of(document).count(Action.CREATE) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("Error: no stack\n", "has no JSON"),
        (json.dumps(handmade.plan())[:-40], "not complete JSON"),
        (json.dumps({"deployment": {}, "version": 3}), "a state"),
        (json.dumps({"format_version": "1.2", "resource_changes": []}), "Terraform plan"),
        (json.dumps({"manifest": {}, "resourcePlans": {}}), "update plan"),
        (json.dumps({"hello": "world"}), "not of a preview"),
        (json.dumps({"steps": "many"}), "not a list"),
        (json.dumps({"steps": [{"op": "create"}]}), "without operation or URN"),
        (json.dumps({"steps": [{"op": "teleport", "urn": handmade.ROOT}]}), "kind that is not known"),
        (json.dumps({"steps": [{"op": "create", "urn": handmade.ROOT}]}), "without a state"),
        (json.dumps({"duration": 1, "changeSummary": {}}), "lists no steps"),
        (json.dumps(handmade.plan()) * 2, "more than one JSON document"),
        ('{"a":' * 50_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_in_one_sentence(text: str, says: str) -> None:
    told = refusal(text)
    assert says in told
    assert "\n" not in told
    assert "Traceback" not in told


def test_a_failed_preview_says_why_and_leaks_nothing() -> None:
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    document = handmade.plan()
    document["diagnostics"] = [
        {"severity": "error", "message": f"error: login with {token} failed\n"}
    ]
    told = refusal(json.dumps(document))
    assert "login with [secret] failed" in told
    assert token not in told


def test_events_that_end_early_failed_or_tell_of_a_run_are_refused() -> None:
    document = loading.document("tenant-added")
    whole = events(document)
    assert "interrupted" in refusal("\n".join(whole.splitlines()[:-2]))
    assert "cut off or damaged at line" in refusal(whole[: len(whole) // 2])
    assert "failed" in refusal(events(document, result="failed"))
    assert "`up` that was made" in refusal(events(document, isPreview=False))


def test_parts_of_a_replacement_are_told_once() -> None:
    inputs = {"path": "/etc/x"}
    steps = [
        handmade.step(op, HOST, "file", inputs, inputs)
        for op in ("create-replacement", "replace", "delete-replaced")
    ]
    assert [s.action for s in plan_of(handmade.plan(*steps)).changed] == [Action.REPLACE]
