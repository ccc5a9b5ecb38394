"""What holds for any state, program, operation and failing provider.

The idea is that of Pulumi's own fuzzing (pulumi/pulumi, pkg/engine/lifecycletest/fuzzing): whatever
breaks a state does so in one operation on a valid one. So one operation is carried out on whatever
runs that failed leave behind.
`GPU_CLUSTERS_EXAMPLES=5000` looks longer; by default few examples are tried, always the same.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import HealthCheck, assume, given, settings

from engine import urn as urns
from engine.state import Snapshot
from tests.engine.enginekit import TYPE, CrashError, Ended, Stack, Thing, faults

NAMES = "abcdefg"

EXAMPLES = os.environ.get("GPU_CLUSTERS_EXAMPLES", "")
RUNS = settings(
    max_examples=int(EXAMPLES or 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=not EXAMPLES,
)
RARE = st.integers(0, 7).map(lambda n: n == 0)
SOME = st.sets(st.sampled_from(NAMES))
CALLS = st.sets(
    st.sampled_from(
        [f"{verb} {name}" for verb in ("create", "update", "delete") for name in NAMES]
    ),
    max_size=4,
)


@st.composite
def programs(draw: st.DrawFn) -> list[Thing]:
    """Resources of a few names; each may need those before it."""
    program: list[Thing] = []
    urn_of: dict[str, str] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        customs = [t.name for t in program if not t.component]
        some = (
            st.lists(st.sampled_from(customs), unique=True, max_size=2) if customs else st.just([])
        )
        component = draw(st.integers(0, 5)) == 0
        options: dict[str, object] = {
            option: True for option in ("protect", "retain_on_delete") if draw(RARE)
        }
        if customs and draw(RARE):
            options["deleted_with"] = urn_of[draw(st.sampled_from(customs))]
        thing = Thing(
            name=name,
            text=draw(st.sampled_from(["one", "two"])),
            key=draw(st.sampled_from(["k", "l"])),
            uses=() if component else tuple(draw(some)),
            after=tuple(draw(some)),
            parent=draw(st.sampled_from(["", *urn_of])),
            component=component,
            options=options,
        )
        type_ = "mem:index:Group" if component else TYPE
        urn_of[name] = urns.make("dev", "memory", urn_of.get(thing.parent, ""), type_, name)
        program.append(thing)
    return program


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    """A stack after runs that failed: some objects wait to be deleted or replaced, some did not come up."""
    stack = Stack()
    for _ in range(draw(st.integers(1, 2))):
        stack.memory.failing, stack.memory.unhealthy = draw(CALLS), draw(CALLS)
        stack.memory.delete_first = draw(SOME)
        stack.up(*draw(programs()), continue_on_error=True)
    stack.memory.failing, stack.memory.unhealthy = set(), set()
    stack.memory.calls.clear()
    return stack


@st.composite
def operations(draw: st.DrawFn) -> dict[str, object]:
    """One operation with its flags."""
    some = st.lists(st.sampled_from([f"**::{n}" for n in NAMES]), unique=True, max_size=3)
    limit = draw(st.sampled_from(["", "", "targets", "excludes"]))
    options: dict[str, object] = {
        "operation": draw(st.sampled_from(["up", "up", "preview", "refresh", "destroy"])),
        "continue_on_error": draw(st.booleans()),
        "refresh": draw(st.integers(0, 3)) == 0,
    }
    if limit:
        options[limit] = tuple(draw(some))
        options["target_dependents"] = limit == "targets" and draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        options["replace"] = tuple(draw(some))
    return options


def carry_out(stack: Stack, program: list[Thing], options: Mapping[str, object]) -> Ended:
    operation = str(options["operation"])
    without = {"refresh": ("refresh", "replace"), "destroy": ("replace",)}.get(operation, ())
    rest = {k: v for k, v in options.items() if k not in ("operation", *without)}
    return getattr(stack, operation)(*(() if without else program), **rest)


def lost(before: Snapshot, made: set[str], stack: Stack) -> set[str]:
    """Objects that are there and that nobody knows of any more."""
    given_up = {r.id for r in before.resources if r.retain_on_delete or r.deleted_with}
    known = {r.id for r in stack.stored.resources}
    managed = {r.id for r in before.resources if r.id} - given_up
    return {i for i in stack.memory.objects if i in (managed | made) and i not in known}


@RUNS
@given(stacks(), programs(), operations(), CALLS, SOME, st.booleans())
def test_no_operation_breaks_a_state_or_loses_an_object(
    stack: Stack,
    program: list[Thing],
    options: dict[str, object],
    failing: set[str],
    delete_first: set[str],
    silent: bool,
) -> None:
    snapshot = stack.load()
    assert not faults(snapshot)
    before = set(stack.memory.objects)
    stack.memory.failing, stack.memory.delete_first = failing, delete_first
    stack.memory.silent = set(NAMES) if silent else set()
    ended = carry_out(stack, program, options)
    made = set(stack.memory.objects) - before
    if options["operation"] == "preview":
        assert set(stack.memory.objects) == before
        assert all(call.startswith("read ") for call in stack.memory.calls)
        return
    assert not faults(ended.snapshot)
    assert not faults(stack.stored)
    assert not lost(snapshot, made, stack)
    if options["operation"] in ("destroy", "refresh"):
        protected = {r.id for r in snapshot.resources if r.protect and r.custom and not r.delete}
        assert protected & before <= set(stack.memory.objects)
    stack.memory.failing = set()
    unprotect(stack)
    assert stack.up(*program).ok


@RUNS
@given(stacks(), programs(), operations(), SOME, st.integers(min_value=1, max_value=40))
def test_whatever_was_cut_off_can_be_finished(
    stack: Stack,
    program: list[Thing],
    options: dict[str, object],
    delete_first: set[str],
    crash_at: int,
) -> None:
    assume(options["operation"] != "preview")
    stack.memory.delete_first = delete_first
    stack.crash_at = stack.saves + crash_at
    try:
        carry_out(stack, program, options)
    except CrashError:
        assert not faults(stack.stored)
    stack.crash_at = None
    unprotect(stack)
    planned = stack.preview(*program)
    ended = stack.up(*program)
    assert ended.ok
    assert not faults(ended.snapshot)
    # What a preview does not know may turn out to be no change; nothing else may differ.
    assert set(ended.changes) <= set(planned.changes) | {"same"}
    assert planned.changes.get("delete", 0) == ended.changes.get("delete", 0)
    alone = Stack()
    alone.up(*program)
    assert {r.urn for r in stack.stored.resources} == {r.urn for r in alone.stored.resources}
    stack.memory.calls.clear()
    assert set(stack.up(*program).changes) <= {"same"}
    assert stack.memory.calls == []
    unprotect(stack)
    planned = stack.destroy(preview=True)
    assert sorted(planned.steps) == sorted(stack.destroy().steps)
    assert stack.stored.resources == ()


def unprotect(stack: Stack) -> None:
    """Take all protection away, as `state unprotect --all` does."""
    stack.stored = dataclasses.replace(
        stack.stored,
        resources=tuple(dataclasses.replace(r, protect=False) for r in stack.stored.resources),
    )
