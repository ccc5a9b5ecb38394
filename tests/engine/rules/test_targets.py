"""`--target`, `--exclude` and `--replace`.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: isTargetedForUpdate,
isExcludedFromUpdate, validateSteps, generateSteps (untargeted resources), GenerateDeletes,
determineForbiddenResourcesToDeleteFromExcludes; pkg/engine/lifecycletest/target_test.go.
"""

from __future__ import annotations

import pytest

from tests.engine.enginekit import Stack, Thing, alias, faults
from tests.engine.rules.kit import GROUP, messages, names, urn


@pytest.fixture
def stack() -> Stack:
    return Stack()


def test_what_is_no_target_keeps_its_dependencies_and_options_too(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"), Thing("c", after=("a",), options={"protect": True}))
    before = stack.stored.resources[-1]
    ended = stack.up(
        Thing("a", text="new"),
        Thing("b"),
        Thing("c", text="new", after=("b",)),
        targets=(urn("a"),),
    )
    assert ended.ok, messages(ended)
    assert [s for s in ended.steps if not s.endswith("default")] == ["update a", "same b", "same c"]
    assert ended.state("c").says_the_same(before)
    assert not faults(ended.snapshot)


def test_the_program_hears_the_old_outputs_of_what_is_no_target(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"))
    ended = stack.up(Thing("a", text="a longer text"), Thing("b", text="new"), targets=(urn("b"),))
    assert ended.state("a").outputs["size"] == len("text")
    assert ended.state("b").outputs["size"] == len("new")


def test_a_target_cannot_need_what_is_not_made(stack: Stack) -> None:
    program = [Thing("a"), Thing("b", uses=("a",))]
    ended = stack.up(*program, targets=(urn("b"),))
    assert not ended.ok
    assert f"Resource '{urn('b')}' depends on '{urn('a')}' which was not specified" in messages(
        ended
    )
    assert stack.memory.calls == []
    assert names(ended) == []


def test_a_plan_names_all_that_targets_lack(stack: Stack) -> None:
    program = [Thing("a"), Thing("b"), Thing("c", after=("a",)), Thing("d", after=("b",))]
    planned = stack.preview(*program, targets=(urn("c"), urn("d")))
    assert not planned.ok
    assert urn("a") in messages(planned)
    assert urn("b") in messages(planned)
    assert {"create c", "create d"} <= set(planned.steps)


def test_what_is_not_made_may_need_what_is_not_made(stack: Stack) -> None:
    ended = stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"), targets=(urn("c"),))
    assert ended.ok, messages(ended)
    assert names(ended) == ["c"]


def test_the_parent_of_a_target_has_to_be_there(stack: Stack) -> None:
    child = urn("a", parent=urn("group", type_=GROUP))
    program = [Thing("group", component=True), Thing("a", parent="group")]
    ended = stack.up(*program, targets=(child,))
    assert not ended.ok
    assert urn("group", type_=GROUP) in messages(ended)


def test_target_dependents_are_updated_with_their_target(stack: Stack) -> None:
    program = [Thing("a"), Thing("b", uses=("a",)), Thing("c", after=("b",)), Thing("d")]
    stack.up(*program)
    changed = [Thing(t.name, text="new", uses=t.uses, after=t.after) for t in program]
    ended = stack.up(*changed, targets=(urn("a"),), target_dependents=True)
    assert ended.ok, messages(ended)
    assert [c for c in stack.memory.calls if c.startswith("update")] == [
        "update a",
        "update b",
        "update c",
    ]


def test_without_target_dependents_only_the_target_is_updated(stack: Stack) -> None:
    program = [Thing("a"), Thing("b", uses=("a",))]
    stack.up(*program)
    changed = [Thing(t.name, text="new", uses=t.uses) for t in program]
    stack.up(*changed, targets=(urn("a"),))
    assert "update b" not in stack.memory.calls


def test_what_is_excluded_is_neither_changed_nor_made(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"))
    stack.memory.calls.clear()
    changed = [Thing("a", text="new"), Thing("b", text="new"), Thing("c")]
    ended = stack.up(*changed, excludes=(urn("b"), urn("c")))
    assert ended.ok, messages(ended)
    assert stack.memory.calls == ["update a"]
    assert names(ended) == ["a", "b"]


def test_a_dependency_that_the_program_dropped_stays_before_its_user(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"))
    ended = stack.up(Thing("c", text="new"), Thing("b"), targets=(urn("c"),))
    assert ended.ok, messages(ended)
    assert set(names(ended)) == {"a", "b", "c"}
    assert not faults(ended.snapshot)


def test_a_chain_of_dropped_dependencies_stays_in_order(stack: Stack) -> None:
    stack.up(
        Thing("group", component=True),
        Thing("a", parent="group"),
        Thing("b", uses=("a",)),
        Thing("c", after=("b",)),
        Thing("d"),
    )
    ended = stack.up(Thing("d", text="new"), Thing("c"), targets=(urn("d"),))
    assert ended.ok, messages(ended)
    assert set(names(ended)) == {"group", "a", "b", "c", "d"}
    assert not faults(ended.snapshot)


def test_a_dependency_that_the_program_registers_later_now_stays_before_its_user(
    stack: Stack,
) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"))
    program = [Thing("b"), Thing("a", text="new"), Thing("c", text="new")]
    ended = stack.up(*program, targets=(urn("c"),))
    assert ended.ok, messages(ended)
    assert [r.name for r in ended.snapshot.resources].count("a") == 1
    assert not faults(ended.snapshot)
    refused = stack.up(*program, targets=(urn("a"),))
    assert not refused.ok
    assert f"'{urn('a')}' is a target, but something" in messages(refused)
    assert not faults(refused.snapshot)
    assert stack.up(*program).ok


def test_what_is_no_target_keeps_its_old_name_until_it_is_one(stack: Stack) -> None:
    stack.up(Thing("old"), Thing("other"))
    renamed = Thing("new", options={"aliases": (alias(name="old"),)})
    ended = stack.up(renamed, Thing("other", text="new"), targets=(urn("other"),))
    assert ended.ok, messages(ended)
    assert set(names(ended)) == {"old", "other"}
    assert set(names(stack.up(renamed, Thing("other", text="new")))) == {"new", "other"}


def test_a_target_is_deleted_only_with_what_needs_it(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"))
    ended = stack.destroy(targets=(urn("a"),))
    assert not ended.ok
    assert f"Resource '{urn('b')}' will be destroyed but was not specified" in messages(ended)
    assert "delete a" not in stack.memory.calls
    together = stack.destroy(targets=(urn("a"),), target_dependents=True)
    assert together.ok
    assert names(together) == ["c"]


def test_the_plan_shows_what_goes_with_a_target(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"))
    planned = stack.destroy(targets=(urn("a"),), preview=True)
    assert not planned.ok
    assert {"delete a", "delete b"} <= set(planned.steps)


def test_children_go_with_a_target(stack: Stack) -> None:
    group = urn("group", type_=GROUP)
    stack.up(Thing("group", component=True), Thing("a", parent="group"), Thing("b"))
    assert not stack.destroy(targets=(group,)).ok
    ended = stack.destroy(targets=(group,), target_dependents=True)
    assert names(ended) == ["b"]


def test_what_the_program_drops_stays_if_it_is_no_target(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"), Thing("c"))
    ended = stack.up(Thing("c"), targets=(urn("a"),))
    assert ended.ok, messages(ended)
    assert set(names(ended)) == {"b", "c"}
    assert not faults(ended.snapshot)


def test_destroying_all_but_one_keeps_what_that_one_needs(stack: Stack) -> None:
    stack.up(
        Thing("group", component=True),
        Thing("a"),
        Thing("b", uses=("a",), parent="group"),
        Thing("c", uses=("b",)),
    )
    ended = stack.destroy(excludes=(urn("b", parent=urn("group", type_=GROUP)),))
    assert ended.ok, messages(ended)
    assert set(names(ended)) == {"group", "a", "b"}
    assert not faults(ended.snapshot)


def test_destroying_every_target_takes_the_default_provider_too(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b"))
    assert stack.destroy(targets=("**",)).snapshot.resources == ()


def test_a_refresh_of_a_target_reads_nothing_else(stack: Stack) -> None:
    stack.up(Thing("a"), Thing("b", uses=("a",)), Thing("c"))
    stack.memory.calls.clear()
    ended = stack.refresh(targets=(urn("a"),))
    assert stack.memory.calls == ["read a"]
    assert ended.changes == {"same": 1}
    stack.memory.calls.clear()
    stack.refresh(targets=(urn("a"),), target_dependents=True)
    assert stack.memory.calls == ["read a", "read b"]
    stack.memory.calls.clear()
    stack.refresh(excludes=(urn("a"),))
    assert stack.memory.calls == ["read b", "read c"]


def test_a_replaced_target_is_not_diffed(stack: Stack) -> None:
    stack.up(Thing("a"))
    stack.memory.diffs.clear()
    ended = stack.up(Thing("a"), replace=(urn("a"),))
    assert ended.changes == {"same": 1, "replace": 1}
    assert stack.memory.diffs == []


def test_asking_for_the_replacement_of_something_new_is_a_create(stack: Stack) -> None:
    assert stack.up(Thing("a"), replace=(urn("a"),)).steps == ["create a"]
