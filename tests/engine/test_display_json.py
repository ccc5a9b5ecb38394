"""The JSON that other programs read: fields and forms are those of Pulumi's CLI."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from engine.display.base import Display, Masker, Options
from engine.display.digest import Digest
from engine.display.eventlines import EventLines
from engine.events import (
    Cancel,
    Diagnostic,
    Event,
    Prelude,
    PropertyDiff,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
    Summary,
)
from engine.state import ResourceState
from engine.values import SECRET, SIGNATURE, UNKNOWN, UNKNOWN_STRING, Secret

PREFIX = "urn:pulumi:dev::refs::"
STACK = ResourceState(f"{PREFIX}pulumi:pulumi:Stack::refs-dev", "pulumi:pulumi:Stack", custom=False)


def resource(name: str, **more: object) -> ResourceState:
    return ResourceState(f"{PREFIX}a:b:C::{name}", "a:b:C", custom=True, parent=STACK.urn, **more)


def step(
    op: str, old: ResourceState | None, new: ResourceState | None, **more: object
) -> StepMetadata:
    state = new or old
    assert state is not None
    return StepMetadata(op, state.urn, state.type, "provider::id", old, new, **more)


def options(**more: object) -> Options:
    given = {
        "preview": True,
        "config": {"refs:token": "[secret]"},
        "mask": Masker(["hello"]),
        **more,
    }
    return Options("update", "dev", "refs", **given)


def play(display: Display, events: Sequence[Event], capsys: pytest.CaptureFixture[str]) -> str:
    with display:
        for event in events:
            display.show(event)
    return capsys.readouterr().out


def digest(events: Sequence[Event], capsys: pytest.CaptureFixture[str], **more: object) -> dict:
    return json.loads(play(Digest(options(**more)), events, capsys))


def lines(
    events: Sequence[Event], capsys: pytest.CaptureFixture[str], **more: object
) -> list[dict]:
    display = EventLines(options(preview=False, **more))
    return [json.loads(line) for line in play(display, events, capsys).splitlines()]


# -- preview --json ----------------------------------------------------------------------


def test_a_plan_lists_what_changes_and_always_the_stack(capsys: pytest.CaptureFixture[str]) -> None:
    same = resource("same")
    document = digest(
        [
            Prelude({}),
            ResourcePre(step("same", STACK, STACK), planning=True),
            ResourcePre(step("same", same, same), planning=True),
            ResourcePre(step("create", None, resource("new")), planning=True),
            Summary({"create": 1, "same": 2}, "succeeded", 1, is_preview=True),
        ],
        capsys,
    )
    assert [s["op"] for s in document["steps"]] == ["same", "create"]
    assert document["changeSummary"] == {"create": 1, "same": 2}
    assert document["config"] == {"refs:token": "[secret]"}
    assert isinstance(document["duration"], int)
    assert "diagnostics" not in document


def test_a_plan_shows_a_resource_whose_protection_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = ResourcePre(step("same", resource("a"), resource("a", protect=True)), planning=True)
    assert [s["op"] for s in digest([event], capsys)["steps"]] == ["same"]


def test_a_replacement_is_one_step_unless_its_parts_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = resource("a"), resource("a")
    events = [
        ResourcePre(step("create-replacement", old, new, logical=False), planning=True),
        ResourcePre(step("replace", old, new), planning=True),
        ResourcePre(step("delete-replaced", old, None, logical=False), planning=True),
    ]
    assert [s["op"] for s in digest(events, capsys)["steps"]] == ["replace"]
    assert len(digest(events, capsys, show_replacement_steps=True)["steps"]) == 3


def test_a_step_has_pulumis_fields(capsys: pytest.CaptureFixture[str]) -> None:
    new = resource("a", inputs={"s": Secret("x"), "u": UNKNOWN, "n": [Secret(1)], "t": "hello 1"})
    event = ResourcePre(
        step(
            "update", resource("a", id="1"), new, keys=("k",), diffs=("t",),
            detailed_diff={"t": PropertyDiff("update", input_diff=True)},
        ),
        planning=True,
    )  # fmt: skip
    (found,) = digest([event], capsys)["steps"]
    assert found == {
        "op": "update",
        "urn": new.urn,
        "provider": "provider::id",
        "oldState": {
            "urn": new.urn,
            "custom": True,
            "id": "1",
            "type": "a:b:C",
            "parent": STACK.urn,
        },
        "newState": {
            "urn": new.urn,
            "custom": True,
            "type": "a:b:C",
            # Plain text that happens to contain a secret is left alone in a plan.
            "inputs": {"n": ["[secret]"], "s": "[secret]", "t": "hello 1", "u": UNKNOWN_STRING},
            "parent": STACK.urn,
        },
        "diffReasons": ["t"],
        "replaceReasons": ["k"],
        "detailedDiff": {"t": {"kind": "update", "inputDiff": True}},
    }


def test_no_detail_and_empty_detail_are_different_things(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [
        ResourcePre(step("update", resource("a"), resource("a")), planning=True),
        ResourcePre(step("update", resource("b"), resource("b"), detailed_diff={}), planning=True),
    ]
    assert [s["detailedDiff"] for s in digest(events, capsys)["steps"]] == [None, {}]


def test_a_refresh_stays_one_unless_it_is_a_deletion_or_detailed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def both(name: str, op: str, **more: object) -> list[Event]:
        a, b = resource(name), resource(name)
        new = None if op == "delete" else b
        return [
            ResourcePre(step("refresh", a, b), planning=True),
            ResourceOutputs(step(op, a, new, **more), planning=True),
        ]

    detail = {"x": PropertyDiff("update", input_diff=False)}
    events = [
        *both("same", "same"),
        *both("drifted", "update"),
        *both("detailed", "update", detailed_diff=detail),
        *both("gone", "delete"),
        *[ResourceOutputs(step("update", STACK, STACK, detailed_diff=detail), planning=True)],
    ]
    assert [s["op"] for s in digest(events, capsys)["steps"]] == [
        "refresh",
        "refresh",
        "update",
        "delete",
    ]


def test_messages_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    document = digest(
        [
            Diagnostic("error", "say hello\n", "urn:x", "error: "),
            Diagnostic("debug", "details\n"),
            Diagnostic("warning", "careful\n", prefix="warning: "),
        ],
        capsys,
    )
    assert document["diagnostics"] == [
        {"urn": "urn:x", "message": "error: say [secret]\n", "severity": "error"},
        {"message": "warning: careful\n", "severity": "warning"},
    ]


def test_nothing_is_printed_when_the_engine_breaks_off(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), Digest(options()):
        raise RuntimeError
    assert capsys.readouterr().out == ""


# -- up --json ---------------------------------------------------------------------------


def test_events_are_numbered_lines_with_one_payload_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = resource("a")
    found = lines(
        [
            Prelude({}),
            ResourcePre(step("create", None, a), planning=False),
            Diagnostic("info", "text\n", a.urn),
            ResourceOutputs(step("create", None, a), planning=False),
            ResourceFailed(step("delete", a, None)),
            Summary({"create": 1}, "failed", 7, is_preview=False),
            Cancel(),
        ],
        capsys,
    )
    assert [line["sequence"] for line in found] == list(range(7))
    assert [set(line) - {"sequence", "timestamp"} for line in found] == [
        {"preludeEvent"}, {"resourcePreEvent"}, {"diagnosticEvent"}, {"resOutputsEvent"},
        {"resOpFailedEvent"}, {"summaryEvent"}, {"cancelEvent"},
    ]  # fmt: skip
    assert found[0]["preludeEvent"] == {"config": {"refs:token": "[secret]"}}
    assert found[2]["diagnosticEvent"] == {
        "urn": a.urn, "message": "text\n", "color": "never", "severity": "info",
    }  # fmt: skip
    assert found[4]["resOpFailedEvent"]["metadata"]["new"] is None
    assert found[5]["summaryEvent"] == {
        "maybeCorrupt": False, "durationSeconds": 7, "resourceChanges": {"create": 1},
        "PolicyPacks": {}, "isPreview": False, "result": "failed",
    }  # fmt: skip


def test_secrets_in_events_are_objects_and_their_text_is_masked_everywhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = resource(
        "a",
        id="hello@1",
        inputs={"s": Secret("x"), "deep": [{"t": "hello 1"}]},
        outputs={"t": "hello"},
        init_errors=("hello failed",),
    )
    (line,) = lines([ResourcePre(step("create", None, a), planning=False)], capsys)
    new = line["resourcePreEvent"]["metadata"]["new"]
    assert new == {
        "type": "a:b:C", "urn": a.urn, "custom": True, "id": "[secret]@1", "parent": STACK.urn,
        "inputs": {
            "s": {SIGNATURE: SECRET, "ciphertext": "[secret]"},
            "deep": [{"t": "[secret] 1"}],
        },
        "outputs": {"t": "[secret]"}, "provider": "", "initErrors": ["[secret] failed"],
    }  # fmt: skip


def test_metadata_has_pulumis_fields(capsys: pytest.CaptureFixture[str]) -> None:
    event = ResourcePre(
        step(
            "replace", resource("a"), resource("a"), keys=("k",), diffs=("k",),
            detailed_diff={"k": PropertyDiff("update-replace", input_diff=False)},
        ),
        planning=True,
    )  # fmt: skip
    (line,) = lines([event], capsys)
    document = line["resourcePreEvent"]
    metadata = document["metadata"]
    assert document["planning"] is True
    assert list(metadata) == [
        "op", "urn", "type", "old", "new", "keys", "diffs", "detailedDiff", "logical", "provider",
    ]  # fmt: skip
    assert metadata["detailedDiff"] == {"k": {"diffKind": "update-replace", "inputDiff": False}}


# -- masking -----------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["ab", "true", "False", ""])
def test_short_and_common_words_are_not_masked(secret: str) -> None:
    assert Masker([secret]).text(f"it is {secret} here") == f"it is {secret} here"


def test_secrets_are_masked_in_json_texts_and_the_longest_first() -> None:
    masker = Masker(["abc", "abcdef", 'quo"ted'])
    assert masker.text("abcdef abc") == "[secret] [secret]"
    assert masker.text(json.dumps({"k": 'quo"ted'})) == '{"k": "[secret]"}'
    assert masker.value({"abc": ["abc", 1, None]}) == {"abc": ["[secret]", 1, None]}
