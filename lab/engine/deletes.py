"""Deletes what the program no longer has, in layers."""

from __future__ import annotations

from collections.abc import Iterable

from lab.engine import urn as urns
from lab.engine.executor import Executor
from lab.engine.graph import layers, needs
from lab.engine.session import Session
from lab.engine.state import ResourceState
from lab.engine.steps import DeleteStep, RemovePendingReplaceStep, Step
from lab.engine.targets import Targets


class TargetError(Exception):
    """Targets that cannot be deleted without others; the message is for the user."""


def plan_deletes(session: Session, targets: Targets) -> list[Step]:
    """A step for each resource that goes, in the order of the state.

    Raises:
        TargetError: something that is not a target depends on one.
    """
    progress = session.progress
    steps: list[Step] = []
    for state in session.base.resources:
        if state.delete:
            steps.append(DeleteStep(state, None, replacing=True))
        elif state.urn not in progress.kept:
            if state.pending_replacement:
                steps.append(RemovePendingReplaceStep(state, None))
            else:
                steps.append(DeleteStep(state, None))
        else:
            continue
        progress.deleted.add(state.urn)
    return _limit(session, targets, steps) if targets.limited else steps


def run_deletes(session: Session, executor: Executor, steps: Iterable[Step]) -> None:
    """Delete layer by layer. What something needs that could not be deleted stays."""
    step_of = {id(step.state): step for step in steps}
    for state in (step.state for step in step_of.values()):
        session.ensure_provider(state.provider)
    kept: set[str] = set()
    for layer in layers([step.state for step in step_of.values()]):
        ready = [step_of[id(s)] for s in layer if s.urn not in kept]
        for state in layer:
            if state.urn in kept:
                kept |= needs(state)
        for failed in executor.run_layer(ready):
            kept |= needs(failed.state)
        if executor.cancelled.is_set():
            return


def _limit(session: Session, targets: Targets, steps: list[Step]) -> list[Step]:
    wanted = [s for s in steps if targets.names(s.state.urn)]
    going = {id(s.state) for s in wanted}
    if session.request.target_dependents:
        for step in wanted:
            dependents = session.graph.dependents(step.state, children=True)
            going.update(id(d) for d in dependents)
        return [s for s in steps if id(s.state) in going]
    if session.request.targets:
        _refuse_dependents(session, wanted, going)
    else:
        wanted = _without_needed(session, steps, going)
    return [s for s in wanted if not urns.is_default_provider(s.state.urn)]


def _refuse_dependents(session: Session, wanted: list[Step], going: set[int]) -> None:
    kept = session.progress.kept
    for step in wanted:
        for dependent in session.graph.dependents(step.state, children=True):
            if id(dependent) not in going and dependent.urn not in kept:
                raise TargetError(
                    f"Cannot delete parent resource '{step.state.urn}' without also deleting child"
                    f" '{dependent.urn}'.\nAdd --target '{dependent.urn}' to include it, or pass"
                    " --target-dependents to proceed."
                )


def _without_needed(session: Session, steps: list[Step], going: set[int]) -> list[Step]:
    staying: list[ResourceState] = [s.state for s in steps if id(s.state) not in going]
    needed = session.graph.dependencies(staying)
    return [s for s in steps if id(s.state) in going and id(s.state) not in needed]
