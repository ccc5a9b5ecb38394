"""What people see: the tree, the lines, the differences, and the report below them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from engine.display import report
from engine.display.base import Display, Masker, Options, Painter
from engine.display.difference import Differences, compare
from engine.display.lines import Lines
from engine.display.rows import short_type
from engine.display.steps import KINDS
from engine.events import (
    Cancel,
    Diagnostic,
    Event,
    PropertyDiff,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
    Summary,
)
from engine.state import ResourceState
from engine.values import UNKNOWN, Secret

PREFIX = "urn:pulumi:dev::refs::"
ROOT = f"{PREFIX}pulumi:pulumi:Stack::refs-dev"
FOLDER = f"{PREFIX}refs:index:Folder::letters"


def stack(**outputs: object) -> ResourceState:
    return ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False, outputs=dict(outputs))


def folder() -> ResourceState:
    return ResourceState(FOLDER, "refs:index:Folder", custom=False, parent=ROOT)


def file(name: str, parent: str = ROOT, **inputs: object) -> ResourceState:
    return ResourceState(
        f"{PREFIX}a:b:File::{name}",
        "a:b:File",
        custom=True,
        id=name,
        parent=parent,
        inputs=dict(inputs),
    )


def step(
    op: str, old: ResourceState | None, new: ResourceState | None, **more: object
) -> StepMetadata:
    state = new or old
    assert state is not None
    return StepMetadata(op, state.urn, state.type, "", old, new, **more)


def begin(op: str, old: ResourceState | None, new: ResourceState | None, **more: object) -> Event:
    return ResourcePre(step(op, old, new, **more), planning=False)


def end(op: str, old: ResourceState | None, new: ResourceState | None, **more: object) -> Event:
    return ResourceOutputs(step(op, old, new, **more), planning=False)


def options(**more: object) -> Options:
    given = {"preview": False, "config": {}, "mask": Masker(["hello"]), **more}
    return Options("update", "dev", "refs", **given)


def play(display: Display, events: Sequence[Event]) -> None:
    with display:
        for event in events:
            display.show(event)


def run_of_many_kinds() -> list[Event]:
    old, new = file("a", FOLDER, text="one"), file("a", FOLDER, text="two")
    return [
        begin("same", stack(), stack()),
        begin("same", folder(), folder()),
        begin("update", old, new, diffs=("text",)),
        begin("create", None, file("b")),
        begin("same", file("quiet"), file("quiet")),
        end("same", file("quiet"), file("quiet")),
        end("update", old, new, diffs=("text",)),
        Diagnostic("info", "from the program\n", ROOT),
        Diagnostic("error", "no space for hello\n", file("b").urn, "error: "),
        ResourceFailed(step("create", None, file("b"))),
        begin("delete", file("old"), None),
        end("delete", file("old"), None),
        end("same", stack(x=1), stack(x=2, password=Secret("p"))),
        Diagnostic("error", "update failed\n", "", "error: "),
        Summary({"update": 1, "delete": 1, "same": 3}, "failed", 75, is_preview=False),
        Cancel(),
    ]


def test_lines_tell_what_begins_what_ends_and_what_went_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    play(Lines(options()), run_of_many_kinds())
    out = re.sub(r"\(\d+\.\d+s\)", "(T)", capsys.readouterr().out)
    assert (
        out
        == """\
Updating (dev):
 ~  a:b:File a updating  [diff: ~text]
 +  a:b:File b creating
 ~  a:b:File a updated  [diff: ~text] (T)
    refs-dev: from the program
 +  a:b:File b creating failed  1 error (T)
 -  a:b:File old deleting
 -  a:b:File old deleted (T)

Diagnostics:
  a:b:File (b):
    error: no space for [secret]

  the run:
    error: update failed

Outputs:
  + password: [secret]
  ~ x       : 1 => 2

Resources:
    ~ 1 updated
    - 1 deleted
    2 changes. 3 unchanged
    1 errored

Duration: 1m15s
"""
    )


def test_a_preview_tells_each_step_once_and_without_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = file("a")
    play(
        Lines(options(preview=True)),
        [
            begin("create", None, new),
            end("create", None, new),
            Summary({"create": 1}, "succeeded", 1, is_preview=True),
        ],
    )
    assert capsys.readouterr().out == (
        "Previewing update (dev):\n +  a:b:File a create\n\nResources:\n    + 1 to create\n"
    )


def test_differences_show_properties_and_hide_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    old = file(
        "a", text="hello", tags={"n": 1}, list=[1, 2], key=Secret("a"), same=1, __provider="gA1"
    )
    new = file(
        "a",
        text="bye",
        tags={"n": 2},
        list=[1, 3],
        key=Secret("b"),
        same=1,
        new=UNKNOWN,
        __provider="gA2",
    )
    play(
        Differences(options(preview=True)),
        [
            begin("same", stack(), stack()),
            begin("update", old, new, keys=("text",)),
            begin("delete", file("b", text="x"), None),
        ],
    )
    assert (
        capsys.readouterr().out.rstrip()
        == f"""\
Previewing update (dev):
~  a:b:File: a (update)
    [id=a]
    [urn={old.urn}]
    [replaced because of: text]
    ~ key : [secret] => [secret]
    ~ list:
        ~ [1]: 2 => 3
    + new : [unknown]
    ~ tags:
        ~ n: 1 => 2
    ~ text: [secret] => "bye"
-  a:b:File: b (delete)
    [id=b]
    [urn={file("b").urn}]
    - text: "x\""""
    )


def test_differences_of_a_refresh_are_those_of_the_outputs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new, gone = file("a"), file("a"), file("b")
    old.outputs, new.outputs = {"size": 1}, {"size": 2}
    play(
        Differences(options(preview=True)),
        [
            begin("refresh", old, new),
            end("update", old, new),
            begin("refresh", gone, gone),
            end("delete", gone, None),
            begin("refresh", file("c"), file("c")),
            end("same", file("c"), file("c")),
        ],
    )
    out = capsys.readouterr().out
    assert "~ size: 1 => 2" in out
    assert "b (delete)" in out
    assert "a:b:File: c" not in out


def test_hidden_differences_stay_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = file("a", noisy=1, x=1), file("a", noisy=2, x=2)
    new.hide_diff = ("noisy",)
    detail = {name: PropertyDiff("update", input_diff=True) for name in ("noisy", "x")}
    play(Differences(options(preview=True)), [begin("update", old, new)])
    play(Lines(options()), [begin("update", old, new, detailed_diff=detail)])
    assert "noisy" not in capsys.readouterr().out


def test_nested_values_are_compared_part_by_part() -> None:
    assert list(compare({"a": {"b": [1]}}, {"a": {"b": [1, {"c": 2}]}})) == [
        ("~", 0, "a:"), ("~", 1, "b:"), ("+", 2, '[1]: {"c": 2}'),
    ]  # fmt: skip


def test_no_secret_is_shown_in_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    events = [end("same", None, stack(password=Secret("p4ss")))]
    play(Lines(options()), events)
    assert "p4ss" not in capsys.readouterr().out


def test_colours_are_written_only_when_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    events = [begin("create", None, file("a"))]
    play(Lines(options(colour=True)), events)
    assert "\x1b[32m" in capsys.readouterr().out
    play(Lines(options()), events)
    assert "\x1b[" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m0s"), (3661, "1h1m1s")]
)
def test_durations_read_as_pulumis(seconds: int, text: str) -> None:
    assert report.duration(seconds) == text


def test_every_kind_of_step_has_its_words() -> None:
    from typing import get_args

    from engine.events import StepOp

    assert set(KINDS) == set(get_args(StepOp))


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("pulumi:pulumi:Stack", "pulumi:pulumi:Stack"),
        ("refs:index:Folder", "refs:Folder"),
        ("kubernetes:core/v1:Namespace", "kubernetes:core/v1:Namespace"),
        ("gcp:compute/instance:Instance", "gcp:compute:Instance"),
    ],
)
def test_types_are_shortened_where_they_repeat_themselves(token: str, text: str) -> None:
    assert short_type(token) == text


def test_long_values_are_cut() -> None:
    text = report.shown("x" * 500)
    assert len(text) == 200
    assert text.endswith("…")


def test_nothing_to_do_is_said_as_such() -> None:
    event = Summary({"same": 4}, "succeeded", 2, is_preview=False)
    lines = report.summary(event, 0, Painter(on=False))
    assert lines == ["Resources:", "    4 unchanged", "", "Duration: 2s"]


def test_a_preview_lists_only_outputs_that_change_secrets_included(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after = stack(a=1, b=1, key=Secret("x")), stack(a=1, b=2, key=Secret("y"))
    play(Lines(options(preview=True)), [end("same", before, after)])
    out = capsys.readouterr().out
    assert "  ~ b  : 1 => 2\n  ~ key: [secret] => [secret]\n" in out
    assert " a" not in out.split("Outputs:")[1]


def replacement() -> list[Event]:
    old, new = file("a", text="one"), file("a", text="two")
    return [
        event
        for op, before, after, logical in (
            ("create-replacement", old, new, False),
            ("replace", old, new, True),
            ("delete-replaced", old, None, False),
        )
        for event in (
            begin(op, before, after, logical=logical),
            end(op, before, after, logical=logical),
        )
    ]


def test_a_run_tells_each_part_of_a_replacement_once(capsys: pytest.CaptureFixture[str]) -> None:
    play(Lines(options()), replacement())
    lines = re.findall(r"a:b:File a ([a-z ]+)", capsys.readouterr().out)
    assert [line.strip() for line in lines] == [
        "creating replacement",
        "created replacement",
        "replacing",
        "replaced",
        "deleting original",
        "deleted original",
    ]


@pytest.mark.parametrize("display", [Lines, Differences])
def test_what_programs_log_for_developers_is_shown_on_request(
    capsys: pytest.CaptureFixture[str], display: type[Display]
) -> None:
    events = [Diagnostic("debug", "inner workings\n")]
    play(display(options()), events)
    assert "inner workings" not in capsys.readouterr().out
    play(display(options(debug=True)), events)
    assert "inner workings" in capsys.readouterr().out


def test_a_program_that_came_to_no_outputs_takes_none_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    play(Lines(options()), [begin("same", stack(x=1), stack())])
    assert "Outputs" not in capsys.readouterr().out
