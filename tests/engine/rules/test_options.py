"""Options that steer the engine, and what happens to what came up only half.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: processIgnoreChanges,
applyReplaceOnChanges; step.go: CreateStep, UpdateStep (InitError, customTimeouts);
sdk/go/common/resource/property_path.go: Reset, Contains; pulumi.com/docs, resource options.
"""

from __future__ import annotations

import pytest

from engine.diff import (
    Changes,
    Diff,
    IgnoreChangesError,
    apply_replace_on_changes,
    compare_inputs,
    ignore_changes,
    resolve_unknown,
)
from engine.values import Secret, Value
from tests.engine.enginekit import Stack, Thing, faults
from tests.engine.rules.kit import messages


@pytest.fixture
def stack() -> Stack:
    return Stack()


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("a", {"a": 1}, {"a": 2}, {"a": 1}),
        ("a", {}, {"a": 2}, {}),
        ("a", {"a": 1}, {}, {"a": 1}),
        ("a.b", {"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "c": 2}}, {"a": {"b": 1, "c": 2}}),
        ('a["b.c"]', {"a": {"b.c": 1}}, {"a": {"b.c": 2}}, {"a": {"b.c": 1}}),
        ("a[1]", {"a": [1, 2]}, {"a": [3, 4]}, {"a": [3, 2]}),
        ("a[*].b", {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 3}]}, {"a": [{"b": 1}]}),
        ("a.*", {"a": {"x": 1}}, {"a": {"x": 2, "y": 3}}, {"a": {"x": 1}}),
        ("*", {"a": 1}, {"a": 2, "b": 3}, {"a": 1}),
        ("a", {"a": Secret(1)}, {"a": Secret(2)}, {"a": Secret(1)}),
        ("a.b", {"a": Secret({"b": 1})}, {"a": Secret({"b": 2})}, {"a": Secret({"b": 1})}),
    ],
)
def test_ignored_changes_are_put_back(
    path: str, old: dict[str, Value], new: dict[str, Value], expected: dict[str, Value]
) -> None:
    assert ignore_changes(new, old, [path]) == expected


def test_an_ignored_property_needs_something_to_be_put_into() -> None:
    with pytest.raises(IgnoreChangesError, match=r'path are missing: "a\.b"'):
        ignore_changes({}, {"a": {"b": 1}}, ["a.b"])


@pytest.mark.parametrize(
    ("pattern", "old", "new", "replaces"),
    [
        ("a", {"a": 1}, {"a": 2}, True),
        ("a", {"a": {"b": 1}}, {"a": {"b": 2}}, True),
        ("a.b", {"a": {"b": 1}}, {"a": {"b": 2}}, True),
        ("a.b", {"a": {"c": 1}}, {"a": {"c": 2}}, False),
        ("a.*.c", {"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, True),
        ("a[*].c", {"a": [{"c": 1}, {"d": 1}]}, {"a": [{"c": 1}, {"d": 2}]}, False),
        ("*", {"a": 1}, {"a": 2}, True),
        ("a", {"a": Secret(1)}, {"a": Secret(2)}, True),
    ],
)
def test_changes_that_ask_for_a_new_object(
    pattern: str, old: dict[str, Value], new: dict[str, Value], *, replaces: bool
) -> None:
    diff = apply_replace_on_changes(compare_inputs(old, new), [pattern], init_errors=False)
    assert diff.changes is Changes.SOME
    assert diff.replace is replaces


def test_a_difference_without_detail_is_only_known_by_its_names() -> None:
    whole = Diff(Changes.SOME, changed_keys=("a",))
    assert apply_replace_on_changes(whole, ["a"], init_errors=False).replace
    assert not apply_replace_on_changes(whole, ["a.b"], init_errors=False).replace


def test_an_equal_value_that_becomes_secret_is_the_same_to_the_engine() -> None:
    # step_generator.go, diffResource: both sides are compared without the marks of secrets.
    old: dict[str, Value] = {"a": "1", "b": {"c": [Secret(2)]}}
    same: dict[str, Value] = {"a": Secret("1"), "b": Secret({"c": [2]})}
    assert resolve_unknown(Diff(Changes.UNKNOWN), old, same, ()).changes is Changes.NONE
    other = resolve_unknown(Diff(Changes.UNKNOWN), old, {**same, "a": Secret("2")}, ())
    assert (other.changes, other.changed_keys) == (Changes.SOME, ("a",))


def test_timeouts_reach_the_provider(stack: Stack) -> None:
    options = {"custom_timeouts": {"create": 300.0, "update": 90.0, "delete": 7.0}}
    stack.up(Thing("a", options=options))
    stack.up(Thing("a", text="new", options=options))
    stack.destroy()
    assert stack.memory.timeouts == {"create a": 300.0, "update a": 90.0, "delete a": 7.0}


def test_outputs_are_secret_where_an_input_is_or_the_program_says_so(stack: Stack) -> None:
    ended = stack.up(Thing("a", options={"additional_secret_outputs": ("size", "nothing")}))
    outputs = ended.state("a").outputs
    assert outputs["size"] == Secret(4)
    assert outputs["text"] == "text"
    assert "nothing" not in outputs


def test_what_came_up_only_half_is_kept_and_updated_by_the_next_run(stack: Stack) -> None:
    stack.memory.unhealthy.add("create a")
    failed = stack.up(Thing("a"), Thing("b", uses=("a",)))
    assert not failed.ok
    assert "not ready" in messages(failed)
    assert failed.state("a").init_errors == ("not ready",)
    assert failed.state("a").id == "a@1"
    assert stack.memory.calls == ["create a"]
    stack.memory.unhealthy.clear()
    stack.memory.calls.clear()
    planned = stack.preview(Thing("a"), Thing("b", uses=("a",)))
    assert planned.changes["update"] == 1
    ended = stack.up(Thing("a"), Thing("b", uses=("a",)))
    assert ended.ok, messages(ended)
    assert stack.memory.calls == ["update a", "create b"]
    assert ended.state("a").init_errors == ()


def test_an_update_that_half_failed_is_tried_again(stack: Stack) -> None:
    stack.up(Thing("a"))
    stack.memory.unhealthy.add("update a")
    for _ in range(2):
        failed = stack.up(Thing("a", text="new"))
        assert not failed.ok
        state = failed.state("a")
        assert (state.id, state.inputs["text"], state.outputs["text"]) == ("a@1", "new", "new")
        assert failed.state("a").init_errors == ("not ready",)
    stack.memory.unhealthy.clear()
    assert stack.up(Thing("a", text="new")).changes == {"same": 1, "update": 1}
    assert set(stack.up(Thing("a", text="new")).changes) == {"same"}


def test_a_refresh_finds_out_what_is_well_again(stack: Stack) -> None:
    stack.memory.unhealthy.add("create a")
    stack.up(Thing("a"))
    stack.memory.unhealthy = {"read a"}
    ill = stack.refresh()
    assert ill.ok
    assert ill.state("a").init_errors == ("not ready",)
    assert "unhealthy" in messages(ill, "warning")
    stack.memory.unhealthy.clear()
    assert stack.refresh().state("a").init_errors == ()
    stack.memory.calls.clear()
    assert set(stack.up(Thing("a")).changes) == {"same"}


def test_what_waits_for_its_replacement_is_not_refreshed(stack: Stack) -> None:
    stack.memory.delete_first.add("a")
    stack.up(Thing("a"))
    stack.memory.failing.add("create a")
    stack.up(Thing("a", key="new"))
    stack.memory.calls.clear()
    ended = stack.refresh()
    assert stack.memory.calls == []
    assert ended.state("a").pending_replacement
    assert not faults(ended.snapshot)
