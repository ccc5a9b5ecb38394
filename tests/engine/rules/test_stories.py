"""What the engine decides, with a provider in memory: the stories of `stories.yaml`.

A story is a list of runs. A resource of a program is its name and what it has besides. `failing` and
`unhealthy` hold for one run; what is then said of its end is checked: the calls of the provider, what is
in the state, what was told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from engine import urn as urns
from engine.events import Diagnostic
from engine.values import Secret
from tests.engine.enginekit import TYPE, Ended, Stack, Thing, alias, faults
from tests.fixtures.tables import beside

STORIES = beside(__file__, "stories.yaml")
FLAGS = ("continue_on_error", "target_dependents")
SELECTIONS = ("targets", "excludes", "replace")


def urn(path: str) -> str:
    """The URN of `name` or of `parent/name`; a parent and what is called a group are components."""
    parent, _, name = path.rpartition("/")
    type_ = "mem:index:Group" if name == "group" else TYPE
    return urns.make("dev", "memory", urn(parent) if parent else "", type_, name)


def past(text: str) -> object:
    kind, _, name = text.rpartition(":")
    if kind == "urn":
        return alias(urn=urn(name))
    if kind == "parent":
        return alias(parentUrn=urn(name))
    return alias(noParent=True) if name == "noParent" else alias(name=name)


OPTIONS = {
    "protect": lambda _: {"protect": True},
    "retain": lambda _: {"retain_on_delete": True},
    "new_first": lambda _: {"delete_before_replace": False},
    "replace_on": lambda text: {"replace_on_changes": (text,)},
    "deleted_with": lambda text: {"deleted_with": urn(text)},
    "trigger": lambda text: {"replacement_trigger": text},
    "timeout": lambda text: {
        "custom_timeouts": dict.fromkeys(("create", "update", "delete"), float(text))
    },
    "alias": lambda text: {"aliases": (past(text),)},
}


def thing(text: str) -> Thing:
    name, *words = text.split()
    fields: dict[str, Any] = {}
    options: dict[str, object] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in OPTIONS:
            options |= OPTIONS[key](value)
        else:
            fields[key] = (value,) if key in ("uses", "after") else value or True
    return Thing(name, options=options, **fields)


def run(stack: Stack, step: Mapping[str, Any]) -> Ended:
    memory = stack.memory
    memory.failing, memory.unhealthy = set(step.get("failing", ())), set(step.get("unhealthy", ()))
    memory.delete_first |= set(step.get("delete_first", ()))
    memory.silent |= set(step.get("silent", ()))
    for id_ in step.get("gone", ()):
        del memory.objects[id_]
    memory.calls.clear()
    memory.diffs.clear()
    options: dict[str, Any] = {key: step[key] for key in FLAGS if key in step}
    options |= {key: tuple(map(urn, step[key])) for key in SELECTIONS if key in step}
    if "plan_destroy" in step:
        return stack.destroy(preview=True, **options)
    (verb,) = step.keys() & {"up", "preview", "destroy", "refresh"}
    return getattr(stack, verb)(*map(thing, step[verb] or ()), **options)


def check(stack: Stack, step: Mapping[str, Any], ended: Ended) -> None:
    told = "\n".join(e.message for e in ended.events if isinstance(e, Diagnostic))

    def real(value: Any) -> Any:
        return re.sub("<(.+?)>", lambda m: urn(m[1]), value) if isinstance(value, str) else value

    assert ended.ok is step.get("ok", True), told
    assert not faults(ended.snapshot) or "preview" in step
    for text in step.get("says", ()):
        assert real(text) in told
    resources = [r for r in ended.snapshot.resources if r.name not in ("memory-dev", "default")]
    found = {
        "calls": stack.memory.calls,
        "objects": sorted(stack.memory.objects),
        "names": sorted(r.name for r in resources),
        "timeouts": stack.memory.timeouts,
        "compared": stack.memory.diffs,
    }
    assert found == {**found, **{key: step[key] for key in found.keys() & step.keys()}}
    assert ended.changes == {**ended.changes, **step.get("changes", {})}
    assert set(step.get("steps", ())) <= set(ended.steps)
    for name, fields in step.get("state", {}).items():
        for key, value in fields.items():
            got = getattr(ended.state(name), key)
            wanted = tuple(map(real, value)) if isinstance(value, list) else real(value)
            assert got == wanted, (name, key)


@pytest.mark.parametrize("story", STORIES)
def test_a_story_ends_as_told(story: str) -> None:
    stack = Stack()
    for step in STORIES[story]:
        before = stack.load().resources
        ended = run(stack, step)
        check(stack, step, ended)
        if step.keys() & {"preview", "plan_destroy"}:
            pairs = zip(before, stack.stored.resources, strict=True)
            assert all(one.says_the_same(other) for one, other in pairs)
            assert not [call for call in stack.memory.calls if not call.startswith("read")]


def test_a_whole_urn_of_another_stack_and_project() -> None:
    stack = Stack()
    stack.up(Thing("old"))
    # What a stack looks like after it was exported, edited and imported under another name.
    for state in stack.stored.resources:
        if state.name == "old":
            state.urn = "urn:pulumi:other::elsewhere::mem:index:Thing::old"
    before = alias(name="old", stack="other", project="elsewhere")
    stack.memory.calls.clear()
    assert stack.up(Thing("new", options={"aliases": (before,)})).ok
    assert stack.memory.calls == []


def test_outputs_are_secret_where_the_program_says_so() -> None:
    secret = {"additional_secret_outputs": ("size", "nothing")}
    outputs = Stack().up(Thing("a", options=secret)).state("a").outputs
    assert outputs == {"text": "text", "key": "key", "size": Secret(4)}


def test_destroying_every_target_takes_the_default_provider_too() -> None:
    stack = Stack()
    stack.up(Thing("a"), Thing("b"))
    assert stack.destroy(targets=("**",)).snapshot.resources == ()
