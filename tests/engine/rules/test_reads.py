"""Resources that are looked up: `get`, and what becomes of them.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: GenerateReadSteps, case
wasExternal; step.go: ReadStep, DeleteStep (discard); pkg/engine/lifecycletest/pulumi_test.go.
"""

from __future__ import annotations

import pytest

from tests.engine.enginekit import Stack, Thing, faults
from tests.engine.rules.kit import messages, names


@pytest.fixture
def stack() -> Stack:
    made = Stack()
    made.memory.objects["there"] = {"text": "text", "key": "key"}
    made.memory.objects["elsewhere"] = {"text": "other text", "key": "key"}
    return made


READ = Thing("a", read="there")


def test_what_is_read_stands_in_the_state_as_external(stack: Stack) -> None:
    ended = stack.up(READ)
    assert ended.ok, messages(ended)
    assert ended.state("a").external
    assert stack.memory.calls == ["read a"]


def test_it_is_read_again_in_each_run(stack: Stack) -> None:
    stack.up(READ)
    stack.memory.objects["there"] = {"text": "a new text", "key": "key"}
    ended = stack.up(READ)
    assert ended.state("a").outputs["text"] == "a new text"


def test_another_id_is_another_object_and_nothing_is_deleted(stack: Stack) -> None:
    stack.up(READ)
    stack.memory.calls.clear()
    ended = stack.up(Thing("a", read="elsewhere"))
    assert ended.state("a").id == "elsewhere"
    assert stack.memory.calls == ["read a"]
    assert names(ended) == ["a"]


def test_what_the_program_no_longer_reads_is_only_forgotten(stack: Stack) -> None:
    stack.up(READ, Thing("b"))
    ended = stack.up(Thing("b"))
    assert "discard a" in ended.steps
    assert names(ended) == ["b"]
    assert "there" in stack.memory.objects
    stack.up(READ)
    assert stack.destroy().ok
    assert "there" in stack.memory.objects


def test_what_was_read_and_is_now_wanted_is_made_anew(stack: Stack) -> None:
    stack.up(READ)
    ended = stack.up(Thing("a"))
    assert ended.ok, messages(ended)
    assert ended.steps[-3:] == ["create-replacement a", "replace a", "discard-replaced a"]
    assert "there" in stack.memory.objects
    assert not ended.state("a").external


def test_what_was_made_and_is_now_read_is_deleted_unless_it_is_the_same(stack: Stack) -> None:
    stack.up(Thing("a"))
    ended = stack.up(READ)
    assert ended.steps[-3:] == ["read-replacement a", "replace a", "delete-replaced a"]
    assert "a@1" not in stack.memory.objects
    made = stack.up(Thing("b")).state("b").id
    ended = stack.up(Thing("b", read=made))
    assert made in stack.memory.objects
    assert ended.state("b").external
    assert not faults(ended.snapshot)


def test_what_is_not_there_cannot_be_read(stack: Stack) -> None:
    ended = stack.up(Thing("a", read="nowhere"))
    assert not ended.ok
    assert "resource 'nowhere' does not exist" in messages(ended)


def test_a_refresh_reads_it_and_forgets_it_if_it_is_gone(stack: Stack) -> None:
    stack.up(READ, Thing("b", uses=("a",)))
    assert names(stack.refresh()) == ["a", "b"]
    del stack.memory.objects["there"]
    ended = stack.refresh()
    assert names(ended) == ["b"]
    assert not faults(ended.snapshot)
