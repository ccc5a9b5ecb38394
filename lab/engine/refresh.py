"""Brings the state in line with what is really there."""

from __future__ import annotations

import dataclasses

from lab.engine import urn as urns
from lab.engine.executor import Executor
from lab.engine.session import Session
from lab.engine.state import PendingOperation, ResourceState
from lab.engine.steps import RefreshStep
from lab.engine.targets import Targets


def refresh(session: Session, targets: Targets, executor: Executor) -> None:
    """Read all resources and go on from what was found."""
    steps = [
        RefreshStep(state, state) for state in session.base.resources if targets.includes(state.urn)
    ]
    for step in steps:
        session.ensure_provider(step.state.provider)
    executor.run_layer(steps)
    if executor.terminated.is_set():
        return
    found = {id(s.old): (None if s.gone else s.new) for s in steps}
    resources = _repair([found.get(id(r), r) for r in session.base.resources])
    base = dataclasses.replace(
        session.base,
        resources=resources,
        pending_operations=_pending(session),
    )
    session.start_from(base)
    if not session.preview:
        session.keeper.rebase(base)


def _pending(session: Session) -> tuple[PendingOperation, ...]:
    if session.request.clear_pending_creates:
        return ()
    return session.base.pending_operations


def _repair(found: list[ResourceState | None]) -> tuple[ResourceState, ...]:
    """The resources that are there, without references to those that are not."""
    resources: list[ResourceState] = []
    there: set[str] = set()
    for state in found:
        if state is None:
            continue
        _strip(state, there)
        resources.append(state)
        there.add(state.urn)
    return tuple(resources)


def _strip(state: ResourceState, there: set[str]) -> None:
    state.dependencies = tuple(d for d in state.dependencies if d in there)
    # Pulumi writes down only those properties that still depend on something.
    left = {
        key: tuple(d for d in dependencies if d in there)
        for key, dependencies in state.property_dependencies.items()
    }
    state.property_dependencies = {key: kept for key, kept in left.items() if kept}
    if state.deleted_with and state.deleted_with not in there:
        state.deleted_with = ""
    if state.parent and state.parent not in there:
        state.parent = next((u for u in there if urns.is_stack(u)), "")
