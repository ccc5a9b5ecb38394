"""What goes with a replacement, and what stands in its way.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: continueStepsFromDiff,
calculateDependentReplacements, applyReplaceOnChanges, providerChanged;
pkg/engine/lifecycletest/delete_before_replace_test.go; pulumi.com/docs, resource options.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.engine.enginekit import Stack, Thing, alias, faults
from tests.engine.rules.kit import GROUP, messages, names, urn


@pytest.fixture
def stack() -> Stack:
    made = Stack()
    made.memory.delete_first.add("a")
    return made


def keyed(name: str, *uses: str, **fields: object) -> Thing:
    """A thing that needs a new object when what it uses gets one."""
    return Thing(name, uses=uses, options={"replace_on_changes": ("of",)}, **fields)  # type: ignore[arg-type]


def test_dependents_that_cannot_live_without_it_go_first_and_come_back(stack: Stack) -> None:
    stack.up(Thing("a"), keyed("b", "a"), keyed("c", "b"), Thing("d", after=("a",)))
    stack.memory.calls.clear()
    ended = stack.up(
        Thing("a", key="new"), keyed("b", "a"), keyed("c", "b"), Thing("d", after=("a",))
    )
    assert ended.ok, messages(ended)
    assert stack.memory.calls == [
        "delete c",
        "delete b",
        "delete a",
        "create a",
        "create b",
        "create c",
    ]
    assert not faults(ended.snapshot)


def test_a_dependent_that_can_be_updated_is_not_replaced(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)))
    stack.memory.calls.clear()
    stack.up(Thing("a", key="new"), Thing("b", uses=("a",)))
    assert stack.memory.calls == ["delete a", "create a", "update b"]


def test_a_dependent_whose_provider_leaves_the_comparison_to_the_engine(stack: Stack) -> None:
    stack.memory.silent.add("b")
    stack.up(Thing("a"), keyed("b", "a"))
    stack.memory.calls.clear()
    stack.up(Thing("a", key="new"), keyed("b", "a"))
    assert stack.memory.calls == ["delete b", "delete a", "create a", "create b"]


def test_a_protected_dependent_stands_in_the_way(stack: Stack) -> None:
    guarded = dataclasses.replace(
        keyed("b", "a"), options={"replace_on_changes": ("of",), "protect": True}
    )
    stack.up(Thing("a"), guarded)
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", key="new"), guarded)
    assert not ended.ok
    assert f'unable to replace resource "{urn("b")}" as part of replacing' in messages(ended)
    assert f"pulumi state unprotect '{urn('b')}'" in messages(ended)
    assert stack.memory.calls == []


def test_what_is_deleted_with_it_is_replaced_without_its_provider(stack: Stack) -> None:
    options = {"deleted_with": urn("a")}
    program = [Thing("a"), Thing("b", uses=("a",), options=options)]
    stack.up(*program)
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", key="new"), program[1])
    assert ended.ok, messages(ended)
    assert stack.memory.calls == ["delete a", "create a", "create b"]


def test_a_chain_of_what_is_deleted_with_another_needs_no_provider(stack: Stack) -> None:
    stack.up(
        Thing("a"),
        Thing("b", after=("a",), options={"deleted_with": urn("a")}),
        Thing("c", after=("b",), options={"deleted_with": urn("b")}),
    )
    stack.memory.calls.clear()
    ended = stack.destroy()
    assert ended.ok
    assert stack.memory.calls == ["delete a"]


def test_a_dependent_that_the_program_drops_meanwhile_is_deleted_once(stack: Stack) -> None:
    stack.up(Thing("a"), keyed("b", "a"))
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", key="new"))
    assert ended.ok, messages(ended)
    assert stack.memory.calls == ["delete b", "delete a", "create a"]
    assert names(ended) == ["a"]


def test_an_older_object_of_a_dependent_goes_before_what_it_needs(stack: Stack) -> None:
    """The dependent was replaced once, but its first object could not be deleted."""
    stack.up(Thing("a"), keyed("b", "a"))
    stack.memory.failing.add("delete b")
    assert not stack.up(Thing("a"), dataclasses.replace(keyed("b", "a"), key="second")).ok
    stack.memory.failing.clear()
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", key="new"), dataclasses.replace(keyed("b", "a"), key="second"))
    assert ended.ok, messages(ended)
    assert stack.memory.calls.count("delete b") == 2
    assert stack.memory.calls.index("delete a") > stack.memory.calls.index("delete b")
    assert len(stack.memory.objects) == 2
    assert not faults(ended.snapshot)


def test_the_program_may_want_the_new_one_first(stack: Stack) -> None:
    options = {"delete_before_replace": False}
    stack.up(Thing("a", options=options), keyed("b", "a"))
    stack.memory.calls.clear()
    stack.up(Thing("a", key="new", options=options), keyed("b", "a"))
    assert stack.memory.calls == ["create a", "create b", "delete b", "delete a"]


def test_an_init_error_can_ask_for_a_new_object(stack: Stack) -> None:
    options = {"replace_on_changes": ("#initerror",)}
    stack.memory.unhealthy.add("create a")
    assert not stack.up(Thing("a", options=options)).ok
    stack.memory.unhealthy.clear()
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", options=options))
    assert ended.ok, messages(ended)
    # The provider has found no difference, so nobody asked for the old one to go first.
    assert stack.memory.calls == ["create a", "delete a"]


def test_a_component_that_becomes_a_resource_is_replaced(stack: Stack) -> None:
    stack.up(Thing("group", component=True))
    before = alias(urn=urn("group", type_=GROUP))
    ended = stack.up(Thing("group", options={"aliases": (before,)}))
    assert ended.ok, messages(ended)
    assert "replace group" in ended.steps
    assert stack.memory.calls == ["create group"]
    assert not faults(ended.snapshot)


def test_a_resource_that_becomes_a_component_is_replaced_and_deleted(stack: Stack) -> None:
    stack.up(Thing("b"))
    before = alias(urn=urn("b"))
    stack.memory.calls.clear()
    ended = stack.up(Thing("b", component=True, options={"aliases": (before,)}))
    assert ended.ok, messages(ended)
    assert stack.memory.calls == ["delete b"]
    assert not faults(ended.snapshot)
    assert stack.memory.objects == {}


def test_unprotecting_and_replacing_can_be_one_run(stack: Stack) -> None:
    stack.up(Thing("b", options={"protect": True}))
    ended = stack.up(Thing("b", key="new"))
    assert ended.ok, messages(ended)
    assert ended.changes["replace"] == 1


def test_a_retained_object_survives_its_replacement(stack: Stack) -> None:
    options = {"retain_on_delete": True}
    stack.up(Thing("b", options=options))
    stack.up(Thing("b", key="new", options=options))
    assert len(stack.memory.objects) == 2
    assert len([r for r in stack.stored.resources if r.name == "b"]) == 1


def test_a_changed_trigger_replaces_and_a_new_one_does_not(stack: Stack) -> None:
    stack.up(Thing("b"))
    first = stack.up(Thing("b", options={"replacement_trigger": "one"}))
    assert "replace" not in first.changes
    second = stack.up(Thing("b", options={"replacement_trigger": "two"}))
    assert second.changes["replace"] == 1
