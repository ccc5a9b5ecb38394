"""Options that steer the engine, and what happens to what came up only half.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: processIgnoreChanges,
applyReplaceOnChanges; step.go: CreateStep, UpdateStep (InitError, customTimeouts);
sdk/go/common/resource/property_path.go: Reset, Contains; pulumi.com/docs, resource options.
"""

from __future__ import annotations

import pytest

from engine.values import Secret
from tests.engine.enginekit import Stack, Thing, faults
from tests.engine.rules.kit import messages


@pytest.fixture
def stack() -> Stack:
    return Stack()


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
