"""What the engine decides, with a provider in memory."""

from __future__ import annotations

import pytest

from engine.events import Diagnostic, ResourceFailed, ResourcePre
from tests.engine.enginekit import Ended, Stack, Thing, faults


@pytest.fixture
def stack() -> Stack:
    return Stack()


def messages(ended: Ended) -> str:
    return "\n".join(e.message for e in ended.events if isinstance(e, Diagnostic))


def test_a_replacement_that_was_cut_off_between_delete_and_create_is_finished(
    stack: Stack,
) -> None:
    stack.memory.delete_first.add("a")
    stack.up(Thing("a"))
    stack.memory.failing.add("create a")
    failed = stack.up(Thing("a", key="other"))
    assert not failed.ok
    assert failed.state("a").pending_replacement
    assert stack.memory.objects == {}
    stack.memory.failing.clear()
    ended = stack.up(Thing("a", key="other"))
    assert ended.steps == ["replace a", "create-replacement a"]
    assert stack.memory.calls.count("delete a") == 1
    assert not faults(ended.snapshot)


def test_a_delete_that_fails_before_a_replacement_leaves_the_old_one_as_it_was(
    stack: Stack,
) -> None:
    stack.memory.delete_first.add("a")
    stack.up(Thing("a"))
    stack.memory.failing.add("delete a")
    failed = stack.up(Thing("a", key="other"))
    assert not failed.ok
    assert not failed.state("a").pending_replacement
    stack.memory.failing.clear()
    assert stack.up(Thing("a", key="other")).ok
    assert [o["key"] for o in stack.memory.objects.values()] == ["other"]


def test_a_pending_replacement_that_the_program_drops_is_forgotten(stack: Stack) -> None:
    stack.memory.delete_first.add("a")
    stack.up(Thing("a"), Thing("b"))
    stack.memory.failing.add("create a")
    stack.up(Thing("a", key="other"), Thing("b"))
    ended = stack.up(Thing("b"))
    assert ended.ok
    assert [r.name for r in ended.snapshot.resources] == ["memory-dev", "default", "b"]
    assert stack.memory.calls.count("delete a") == 1


def test_a_failed_delete_of_a_replaced_one_is_made_up_for(stack: Stack) -> None:
    stack.up(Thing("a"))
    stack.memory.failing.add("delete a")
    failed = stack.up(Thing("a", key="other"))
    assert [r.delete for r in failed.snapshot.resources if r.name == "a"] == [False, True]
    stack.memory.failing.clear()
    ended = stack.up(Thing("a", key="other"))
    assert ended.steps[-1] == "delete-replaced a"
    assert len(stack.memory.objects) == 1


def test_with_continue_on_error_the_independent_ones_are_made(stack: Stack) -> None:
    stack.memory.failing.add("create b")
    program = [Thing("a"), Thing("b"), Thing("c", uses=("b",)), Thing("d")]
    ended = stack.up(*program, continue_on_error=True)
    assert not ended.ok
    assert stack.memory.calls == ["create a", "create b", "create d"]
    stack.memory.failing.clear()
    assert stack.up(*program).ok


def test_with_continue_on_error_a_refused_input_does_not_stop_the_others(stack: Stack) -> None:
    ended = stack.up(Thing("b", text="refused"), Thing("c"), continue_on_error=True)
    assert not ended.ok
    assert stack.memory.calls == ["create c"]


def test_what_failed_to_be_updated_is_not_deleted(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)))
    stack.memory.failing.add("update a")
    ended = stack.up(
        Thing("a", text="new"), Thing("b", uses=("a",)), Thing("c"), continue_on_error=True
    )
    assert not ended.ok
    assert {r.name for r in ended.snapshot.resources} >= {"a", "b", "c"}


def test_an_old_one_stays_while_what_needs_it_could_not_be_changed(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)))
    stack.memory.failing.add("update b")
    program = [Thing("a", key="other"), Thing("b", uses=("a",))]
    assert not stack.up(*program, continue_on_error=True).ok
    assert "a@1" in stack.memory.objects
    stack.memory.failing.clear()
    assert stack.up(*program).ok
    assert "a@1" not in stack.memory.objects


def test_a_protected_resource_is_neither_deleted_nor_replaced(stack: Stack) -> None:
    options = {"protect": True}
    stack.up(Thing("a", options=options), Thing("b", uses=("a",)))
    replaced = stack.up(Thing("a", key="other", options=options), Thing("b", uses=("a",)))
    assert not replaced.ok
    assert "unable to replace resource" in messages(replaced)
    destroyed = stack.destroy()
    assert not destroyed.ok
    assert [r.name for r in destroyed.snapshot.resources] == ["memory-dev", "default", "a"]
    assert any(isinstance(e, ResourceFailed) for e in destroyed.events)


def test_what_a_protected_resource_needs_stays_too(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",), options={"protect": True}), Thing("c"))
    ended = stack.destroy()
    assert [r.name for r in ended.snapshot.resources] == ["memory-dev", "default", "a", "b"]


def test_children_take_protection_from_their_parent(stack: Stack) -> None:
    stack.up(Thing("group", component=True, options={"protect": True}), Thing("a", parent="group"))
    assert stack.stored.resources[-1].protect


def test_a_preview_of_a_replacement_keeps_the_state(stack: Stack) -> None:
    stack.memory.delete_first.add("a")
    stack.up(Thing("a"), Thing("b", uses=("a",)))
    before = [r.copy() for r in stack.stored.resources]
    planned = stack.preview(Thing("a", key="other"), Thing("b", uses=("a",)))
    assert planned.changes["replace"] == 1
    assert all(a.says_the_same(b) for a, b in zip(before, stack.stored.resources, strict=True))


def test_a_resource_can_be_asked_to_be_replaced(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"))
    ended = stack.up(Thing("a"), Thing("b"), replace=(stack.stored.resources[2].urn,))
    assert ended.changes == {"replace": 1, "same": 2}


def test_two_resources_of_one_name_are_refused(stack: Stack) -> None:
    ended = stack.up(Thing("a"), Thing("a"))
    assert not ended.ok
    assert "Duplicate resource URN" in messages(ended)


def test_a_refresh_hands_children_of_what_is_gone_to_the_next_parent_above(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", parent="a"), Thing("c", parent="b"), Thing("d", parent="c"))
    for gone in ("b@2", "c@3"):
        del stack.memory.objects[gone]
    ended = stack.refresh()
    assert ended.state("d").parent == ended.state("a").urn
    assert not faults(ended.snapshot)


def test_a_step_is_announced_before_it_is_taken(stack: Stack) -> None:
    ended = stack.up(Thing("a"))
    kinds = [
        (type(e).__name__, e.metadata.op)
        for e in ended.events
        if isinstance(e, ResourcePre) and e.metadata.state.name == "a"
    ]
    assert kinds == [("ResourcePre", "create")]
