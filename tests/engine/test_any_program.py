"""What holds for any programs, failures and crashes.

`GPU_CLUSTERS_EXAMPLES` says how many examples are tried of each; by default few, always the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tests.engine.enginekit import CrashError, Stack, Thing, faults

NAMES = "abcdefg"

EXAMPLES = os.environ.get("GPU_CLUSTERS_EXAMPLES", "")
RUNS = settings(
    max_examples=int(EXAMPLES or 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=not EXAMPLES,
)


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


def stack_with(first: Sequence[Thing], delete_first: set[str]) -> Stack:
    stack = Stack()
    stack.memory.delete_first = delete_first
    assert stack.up(*first).ok
    return stack


@RUNS
@given(programs(), programs(), st.sets(st.sampled_from(NAMES)))
def test_the_second_up_is_empty_and_destroy_leaves_nothing(
    first: list[Thing], second: list[Thing], delete_first: set[str]
) -> None:
    stack = stack_with(first, delete_first)
    planned = stack.preview(*second)
    ended = stack.up(*second)
    assert ended.ok
    assert not faults(ended.snapshot)
    # What a preview does not know may turn out to be no change; nothing else may differ.
    assert set(ended.changes) <= set(planned.changes) | {"same"}
    assert planned.changes.get("delete", 0) == ended.changes.get("delete", 0)
    stack.memory.calls.clear()
    assert set(stack.up(*second).changes) == {"same"}
    assert stack.memory.calls == []
    assert stack.destroy().ok
    assert stack.stored.resources == ()


@RUNS
@given(programs(), programs(), verbs(), st.sets(st.sampled_from(NAMES)), st.booleans())
def test_a_failing_provider_never_loses_a_resource(
    first: list[Thing],
    second: list[Thing],
    failing: set[str],
    delete_first: set[str],
    continue_on_error: bool,
) -> None:
    stack = stack_with(first, delete_first)
    retained = {r.name for r in stack.stored.resources if r.retain_on_delete}
    stack.memory.failing = failing
    failed = stack.up(*second, continue_on_error=continue_on_error)
    assert not faults(failed.snapshot)
    known = {r.id for r in stack.stored.resources if not r.pending_replacement}
    retained |= {r.name for r in stack.stored.resources if r.retain_on_delete}
    lost = {i for i in stack.memory.objects if i not in known and i.split("@")[0] not in retained}
    assert not lost
    stack.memory.failing = set()
    assert stack.up(*second).ok
    alone = stack_with(second, delete_first)
    assert {r.urn for r in stack.stored.resources} == {r.urn for r in alone.stored.resources}


@RUNS
@given(
    programs(),
    programs(),
    st.sets(st.sampled_from(NAMES)),
    st.integers(min_value=1, max_value=60),
)
def test_a_run_that_was_cut_off_and_resumed_ends_like_one_that_was_not(
    first: list[Thing], second: list[Thing], delete_first: set[str], crash_at: int
) -> None:
    stack = stack_with(first, delete_first)
    stack.saves = 0
    stack.crash_at = crash_at
    try:
        stack.up(*second)
    except CrashError:
        assert not faults(stack.stored)
    stack.crash_at = None
    resumed = stack.up(*second)
    assert resumed.ok
    assert not faults(resumed.snapshot)
    whole = stack_with(first, delete_first)
    ended = whole.up(*second)
    assert {r.urn for r in resumed.snapshot.resources} == {r.urn for r in ended.snapshot.resources}
    stack.memory.calls.clear()
    assert set(stack.up(*second).changes) == {"same"}
    assert stack.memory.calls == []
