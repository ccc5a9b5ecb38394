"""What people see and what other programs read: each display of one run of many kinds, as recorded.

The fields and forms of the JSON are those of Pulumi's CLI.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
from syrupy.assertion import SnapshotAssertion

from engine.display import report
from engine.display.base import Display, Masker, Options
from engine.display.difference import Differences, compare
from engine.display.digest import Digest
from engine.display.eventlines import EventLines
from engine.display.lines import Lines
from engine.display.rows import short_type
from engine.display.steps import KINDS
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
    StepOp,
    Summary,
)
from engine.state import ResourceState
from engine.values import UNKNOWN, Secret
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")
PREFIX = "urn:pulumi:dev::refs::"
ROOT = f"{PREFIX}pulumi:pulumi:Stack::refs-dev"
FOLDER = f"{PREFIX}refs:index:Folder::letters"
Play = Callable[..., str]


def stack(**outputs: object) -> ResourceState:
    return ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False, outputs=dict(outputs))


def file(name: str, parent: str = ROOT, **inputs: object) -> ResourceState:
    urn = f"{PREFIX}a:b:File::{name}"
    return ResourceState(urn, "a:b:File", custom=True, id=name, parent=parent, inputs=dict(inputs))


def step(
    op: str, old: ResourceState | None, new: ResourceState | None, **more: object
) -> StepMetadata:
    state = new or old
    assert state is not None
    return StepMetadata(op, state.urn, state.type, "provider::id", old, new, **more)


def begin(op: str, old: ResourceState | None, new: ResourceState | None, **more: object) -> Event:
    return ResourcePre(step(op, old, new, **more), planning=False)


def both(
    op: str, old: ResourceState | None, new: ResourceState | None, **more: object
) -> list[Event]:
    metadata = step(op, old, new, **more)
    return [ResourcePre(metadata, planning=False), ResourceOutputs(metadata, planning=False)]


def detail(kind: str, *names: str) -> dict[str, PropertyDiff]:
    return {name: PropertyDiff(kind, input_diff=True) for name in names}


def run_of_many_kinds() -> list[Event]:
    folder = ResourceState(FOLDER, "refs:index:Folder", custom=False, parent=ROOT)
    old = file("a", FOLDER, text="hello", tags={"n": 1}, list=[1, 2], key=Secret("p4ss"), same=1)
    new = file("a", FOLDER, text="bye", tags={"n": 2}, list=[1, 3], key=Secret("p5ss"), same=1)
    old.inputs["__provider"], new.inputs["__provider"] = "gA1", "gA2"
    new.inputs["new"] = UNKNOWN
    new.init_errors = ("hello failed",)
    quiet, guarded = file("quiet"), file("guarded")
    guarded.protect = True
    loud, louder = file("loud", noisy=1, x=1), file("loud", noisy=2, x=2)
    louder.hide_diff = ("noisy",)
    one, two = file("one", key="k"), file("one", key="l")
    keys = {"keys": ("key",), "diffs": ("key",)}
    return [
        Prelude({}),
        begin("same", stack(), stack()),
        *both("same", folder, folder),
        *both("update", old, new, diffs=("text",)),
        *both("same", quiet, quiet),
        *both("same", file("guarded"), guarded),
        *both("update", loud, louder, detailed_diff=detail("update", "noisy", "x")),
        *both("create-replacement", one, two, logical=False, **keys),
        *both("replace", one, two, detailed_diff=detail("update-replace", "key"), **keys),
        *both("delete-replaced", one, None, logical=False),
        begin("create", None, file("b")),
        Diagnostic("info", "from the program\n", ROOT),
        Diagnostic("debug", "inner workings\n"),
        Diagnostic("error", "no space for hello\n", file("b").urn, "error: "),
        ResourceFailed(step("create", None, file("b"))),
        *both("delete", file("old", text="x"), None, detailed_diff={}),
        *both("same", stack(a=1, x=1, gone=1), stack(a=1, x=2, password=Secret("p4ss")))[1:],
        Diagnostic("error", "update failed\n", "", "error: "),
        Summary({"update": 2, "delete": 1, "same": 3}, "failed", 75, is_preview=False),
        Cancel(),
    ]


def refreshed() -> list[Event]:
    """A refresh tells at its end only what it has found."""

    def found(name: str, op: str, **more: object) -> list[Event]:
        old, new = file(name), file(name)
        old.outputs, new.outputs = {"size": 1}, {"size": 1 if op == "same" else 2}
        end = step(op, old, None if op == "delete" else new, **more)
        return [begin("refresh", old, new), ResourceOutputs(end, planning=True)]

    root = step("update", stack(), stack(), detailed_diff=detail("update", "x"))
    return [
        *found("same", "same"),
        *found("drifted", "update"),
        *found("detailed", "update", detailed_diff=detail("update", "size")),
        *found("gone", "delete"),
        ResourceOutputs(root, planning=True),
    ]


@pytest.fixture
def play(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Play:
    """Shows events as a display does, without a clock; gives what was printed."""
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)

    def shown(display: type[Display], events: list[Event], **more: object) -> str:
        given = {"preview": False, "config": {"refs:token": "[secret]"}, "mask": Masker(["hello"])}
        with display(Options("update", "dev", "refs", **{**given, **more})) as playing:
            for event in events:
                playing.show(event)
        return capsys.readouterr().out

    return shown


def by_lines(text: str) -> str:
    """A document as a line for each of its steps and one for the rest."""
    document = json.loads(text)
    return "\n".join(json.dumps(part) for part in (*document.pop("steps"), document))


DISPLAYS = {
    "lines": (Lines, {}),
    "lines of a preview": (Lines, {"preview": True}),
    "differences": (Differences, {"preview": True}),
    "digest": (Digest, {"preview": True}),
    "event lines": (EventLines, {}),
}


@pytest.mark.parametrize("events", [run_of_many_kinds, refreshed])
@pytest.mark.parametrize("display", DISPLAYS)
def test_a_run_is_shown_as_recorded(
    play: Play, snapshot: SnapshotAssertion, display: str, events: Callable[[], list[Event]]
) -> None:
    kind, more = DISPLAYS[display]
    out = play(kind, events(), **more)
    assert not re.search("p[45]ss|no space for hello|inner workings", out) or kind is EventLines
    assert not re.search("p[45]ss|hello", out) or kind is Digest
    assert "noisy" not in out or kind in (Digest, EventLines)
    assert (by_lines(out) if kind is Digest else out) == snapshot


def test_a_plan_is_not_printed_when_the_engine_breaks_off(play: Play) -> None:
    def broken() -> Any:
        yield Prelude({})
        raise RuntimeError

    with pytest.raises(RuntimeError):
        play(Digest, broken())
    assert play(Lines, []).strip() == "Updating (dev):"


def test_a_program_that_came_to_no_outputs_takes_none_away(play: Play) -> None:
    assert "Outputs" not in play(Lines, [begin("same", stack(x=1), stack())])


def test_nothing_to_do_is_said_as_such(play: Play) -> None:
    events: list[Event] = [Summary({"same": 4}, "succeeded", 3661, is_preview=False)]
    assert "Resources:\n    4 unchanged\n\nDuration: 1h1m1s\n" in play(Lines, events)


def test_every_kind_of_step_has_its_words() -> None:
    assert set(KINDS) == set(get_args(StepOp))


def test_nested_values_are_compared_part_by_part_and_long_ones_cut() -> None:
    assert list(compare({"a": {"b": [1]}}, {"a": {"b": [1, {"c": 2}]}})) == [
        ("~", 0, "a:"), ("~", 1, "b:"), ("+", 2, '[1]: {"c": 2}'),
    ]  # fmt: skip
    text = report.shown("x" * 500)
    assert (len(text), text[-1]) == (200, "…")


@pytest.mark.parametrize(("token", "text"), ROWS["types"])
def test_types_are_shortened_where_they_repeat_themselves(token: str, text: str) -> None:
    assert short_type(token) == text


@pytest.mark.parametrize("secret", ["ab", "true", "False", ""])
def test_short_and_common_words_are_not_masked(secret: str) -> None:
    assert Masker([secret]).text(f"it is {secret} here") == f"it is {secret} here"


def test_secrets_are_masked_in_json_texts_and_the_longest_first() -> None:
    masker = Masker(["abc", "abcdef", 'quo"ted'])
    assert masker.text("abcdef abc") == "[secret] [secret]"
    assert masker.text(json.dumps({"k": 'quo"ted'})) == '{"k": "[secret]"}'
    assert masker.value({"abc": ["abc", 1, None]}) == {"abc": ["[secret]", 1, None]}
