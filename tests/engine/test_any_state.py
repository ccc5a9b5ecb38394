"""What holds for any state, program, operation and failing provider.

The idea is that of Pulumi's own fuzzing (pulumi/pulumi, pkg/engine/lifecycletest/fuzzing): whatever
breaks a state does so in one operation on a valid one. So any valid state is made up, with what
runs that failed leave behind, and one operation is carried out on it.
`GPU_CLUSTERS_EXAMPLES=5000` looks longer; by default few examples are tried, always the same.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import HealthCheck, assume, given, settings

from engine import urn as urns
from engine.state import STACK_TYPE, ResourceState, Snapshot
from engine.values import Values
from tests.engine.enginekit import TYPE, CrashError, Ended, Stack, Thing, faults

NAMES = "abcdefg"

EXAMPLES = os.environ.get("GPU_CLUSTERS_EXAMPLES", "")
RUNS = settings(
    max_examples=int(EXAMPLES or 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=not EXAMPLES,
)
ROOT = urns.make("dev", "memory", "", STACK_TYPE, "memory-dev")
PROVIDER = urns.make("dev", "memory", "", "pulumi:providers:mem", "default")
PROVIDER_ID = "00000000-0000-4000-8000-000000000001"


@st.composite
def programs(draw: st.DrawFn) -> list[Thing]:
    """Resources of a few names; each may need those before it."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES)))
    program: list[Thing] = []
    for name in names:
        customs = [t.name for t in program if not t.component]
        some = (
            st.lists(st.sampled_from(customs), unique=True, max_size=2) if customs else st.just([])
        )
        parents = [t.name for t in program]
        component = draw(st.integers(0, 5)) == 0
        program.append(
            Thing(
                name=name,
                text=draw(st.sampled_from(["one", "two"])),
                key=draw(st.sampled_from(["k", "l"])),
                uses=() if component else tuple(draw(some)),
                after=tuple(draw(some)),
                parent=draw(st.sampled_from(["", *parents])),
                component=component,
                options={"retain_on_delete": True} if draw(st.integers(0, 9)) == 0 else {},
            )
        )
    return program


def verbs() -> st.SearchStrategy[set[str]]:
    """Calls that fail."""
    calls = [f"{verb} {name}" for verb in ("create", "update", "delete") for name in NAMES]
    return st.sets(st.sampled_from(calls), max_size=4)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any valid state: with objects that wait to be deleted or replaced, are read, did not come up."""
    resources = [
        ResourceState(ROOT, STACK_TYPE, custom=False),
        ResourceState(PROVIDER, "pulumi:providers:mem", custom=True, id=PROVIDER_ID, parent=""),
    ]
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES)))
    for name in names:
        resources.append(draw(resource(name, resources)))
    for name in draw(st.lists(st.sampled_from(names), max_size=2)) if names else ():
        # An object whose replacement succeeded and whose deletion did not.
        old = draw(resource(name, resources, suffix="-old"))
        if old.custom:
            resources.append(dataclasses.replace(old, delete=True, pending_replacement=False))
    return Snapshot(tuple(resources))


@st.composite
def resource(
    draw: st.DrawFn, name: str, before: list[ResourceState], suffix: str = ""
) -> ResourceState:
    current = [r for r in before if not r.delete and r.type != "pulumi:providers:mem"]
    customs = [r.urn for r in current if r.custom and r.name != name]
    parents = [r.urn for r in current if r.name != name]
    some = st.lists(st.sampled_from(customs), unique=True, max_size=2) if customs else st.just([])
    parent = draw(st.sampled_from(parents))
    custom = draw(st.integers(0, 5)) > 0
    type_ = TYPE if custom else "mem:index:Group"
    uses = draw(some) if custom else []
    rare = st.integers(0, 7).map(lambda n: n == 0)
    inputs: Values = {
        "text": draw(st.sampled_from(["one", "two"])),
        "key": draw(st.sampled_from(["k", "l"])),
    }
    if uses:
        inputs["of"] = [f"{urns.name_of(u)}@0" for u in uses]
    return ResourceState(
        urn=urns.make("dev", "memory", parent, type_, name),
        type=type_,
        custom=custom,
        id=f"{name}@0{suffix}" if custom else "",
        inputs=inputs if custom else {},
        outputs={**inputs, "size": 3} if custom else {},
        parent=parent,
        provider=f"{PROVIDER}::{PROVIDER_ID}" if custom else "",
        dependencies=(*uses, *draw(some)),
        property_dependencies={"of": tuple(uses)} if uses else {},
        protect=draw(rare),
        retain_on_delete=draw(rare),
        pending_replacement=custom and draw(rare),
        init_errors=("not ready",) if custom and draw(rare) else (),
        deleted_with=draw(st.sampled_from(["", "", "", *customs])),
    )


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


def stack_in(snapshot: Snapshot) -> Stack:
    """A stack in that state, with the objects that belong to it."""
    stack = Stack()
    stack.stored = snapshot
    for state in snapshot.resources:
        if state.custom and not state.is_provider and not state.pending_replacement:
            stack.memory.objects[state.id] = dict(state.inputs)
    return stack


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
@given(
    snapshots(), programs(), operations(), verbs(), st.sets(st.sampled_from(NAMES)), st.booleans()
)
def test_no_operation_breaks_a_state_or_loses_an_object(
    snapshot: Snapshot,
    program: list[Thing],
    options: dict[str, object],
    failing: set[str],
    delete_first: set[str],
    silent: bool,
) -> None:
    assert not faults(snapshot)
    stack = stack_in(snapshot)
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
@given(
    snapshots(),
    programs(),
    operations(),
    st.sets(st.sampled_from(NAMES)),
    st.integers(min_value=1, max_value=40),
)
def test_whatever_was_cut_off_can_be_finished(
    snapshot: Snapshot,
    program: list[Thing],
    options: dict[str, object],
    delete_first: set[str],
    crash_at: int,
) -> None:
    assume(options["operation"] != "preview")
    stack = stack_in(snapshot)
    stack.memory.delete_first = delete_first
    stack.crash_at = crash_at
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
    planned = stack.destroy(preview=True)
    assert sorted(planned.steps) == sorted(stack.destroy().steps)
    assert stack.stored.resources == ()


def unprotect(stack: Stack) -> None:
    """Take all protection away, as `state unprotect --all` does."""
    stack.stored = dataclasses.replace(
        stack.stored,
        resources=tuple(dataclasses.replace(r, protect=False) for r in stack.stored.resources),
    )
