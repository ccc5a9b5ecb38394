"""Aliases: of names, types, parents, projects, and what children inherit.

Reference: pulumi/pulumi, pkg/resource/deploy/step_generator.go: generateAliases,
collapseAliasToUrn, inheritedChildAlias; pulumi.com/docs, "Aliases" resource option.
"""

from __future__ import annotations

import pytest

from tests.engine.enginekit import Stack, Thing, alias, faults
from tests.engine.rules.kit import GROUP, messages, names, urn

GROUP_URN = urn("group", type_=GROUP)


@pytest.fixture
def stack() -> Stack:
    return Stack()


def taken_over(stack: Stack, *program: Thing) -> bool:
    """Whether the program takes over what is there without touching an object."""
    stack.memory.calls.clear()
    ended = stack.up(*program)
    assert ended.ok, messages(ended)
    assert not faults(ended.snapshot)
    return stack.memory.calls == []


def aliased(name: str, *aliases: object, **fields: object) -> Thing:
    return Thing(name, options={"aliases": aliases}, **fields)  # type: ignore[arg-type]


def test_a_name(stack: Stack) -> None:
    stack.up(Thing("old"))
    assert taken_over(stack, aliased("new", alias(name="old")))


def test_a_whole_urn_of_another_stack_and_project(stack: Stack) -> None:
    stack.up(Thing("old"))
    # What a stack looks like after it was exported, edited and imported under another name.
    for state in stack.stored.resources:
        if state.name == "old":
            state.urn = "urn:pulumi:other::elsewhere::mem:index:Thing::old"
    assert taken_over(stack, aliased("new", alias(name="old", stack="other", project="elsewhere")))


def test_a_parent_that_was_added(stack: Stack) -> None:
    stack.up(Thing("a"))
    child = aliased("a", alias(noParent=True), parent="group")
    assert taken_over(stack, Thing("group", component=True), child)
    assert stack.stored.resources[-1].urn == urn("a", parent=GROUP_URN)


def test_a_parent_that_was_taken_away(stack: Stack) -> None:
    stack.up(Thing("group", component=True), Thing("a", parent="group"))
    child = aliased("a", alias(parentUrn=GROUP_URN))
    assert taken_over(stack, Thing("group", component=True), child)


def test_children_follow_an_aliased_parent(stack: Stack) -> None:
    stack.up(Thing("old", component=True), Thing("old-a", parent="old"), Thing("b", parent="old"))
    assert taken_over(
        stack,
        aliased("new", alias(name="old"), component=True),
        Thing("new-a", parent="new"),
        Thing("b", parent="new"),
    )
    assert names(stack.up(aliased("new", component=True), Thing("new-a", parent="new"))) == [
        "new",
        "new-a",
    ]


def test_a_child_with_an_alias_of_its_own_below_an_aliased_parent(stack: Stack) -> None:
    stack.up(Thing("old", component=True), Thing("a", parent="old"))
    assert taken_over(
        stack,
        aliased("new", alias(name="old"), component=True),
        aliased("b", alias(name="a"), parent="new"),
    )


def test_an_alias_that_names_a_parent_which_was_renamed_itself(stack: Stack) -> None:
    group = urn("new", type_=GROUP)
    stack.up(Thing("old", component=True), Thing("a", parent="old"))
    assert taken_over(
        stack,
        aliased("new", alias(name="old"), component=True),
        aliased("a", alias(parentUrn=group)),
    )


def test_grandchildren_follow_too(stack: Stack) -> None:
    stack.up(
        Thing("old", component=True),
        Thing("old-inner", component=True, parent="old"),
        Thing("old-inner-a", parent="old-inner"),
    )
    assert taken_over(
        stack,
        aliased("new", alias(name="old"), component=True),
        Thing("new-inner", component=True, parent="new"),
        Thing("new-inner-a", parent="new-inner"),
    )


def test_two_resources_cannot_have_the_same_past(stack: Stack) -> None:
    stack.up(Thing("old"))
    ended = stack.up(aliased("a", alias(name="old")), aliased("b", alias(name="old")))
    assert not ended.ok
    assert "Duplicate resource alias" in messages(ended)


def test_a_name_that_was_given_away_cannot_be_registered(stack: Stack) -> None:
    stack.up(Thing("old"))
    ended = stack.up(aliased("new", alias(name="old")), Thing("old"))
    assert not ended.ok
    assert "conflicting with alias" in messages(ended)


def test_its_own_name_comes_before_aliases(stack: Stack) -> None:
    stack.up(Thing("old"), Thing("new"))
    ended = stack.up(aliased("new", alias(name="old")))
    assert "delete old" in ended.steps
    assert names(ended) == ["new"]


def test_a_type_that_changed_is_no_alias_by_itself(stack: Stack) -> None:
    stack.up(Thing("a"))
    ended = stack.up(Thing("a", component=True))
    assert "delete a" in ended.steps


def test_what_depends_on_a_renamed_one_speaks_of_its_new_name(stack: Stack) -> None:
    stack.up(Thing("old"), Thing("b", uses=("old",)), Thing("c"))
    # `b` is no target: it stays word for word, but for the name.
    ended = stack.up(
        aliased("new", alias(name="old"), text="changed"),
        Thing("b", uses=("new",)),
        Thing("c"),
        targets=(urn("new"),),
    )
    assert ended.ok, messages(ended)
    assert ended.state("b").dependencies == (urn("new"),)
    assert not faults(ended.snapshot)
