"""Brings the state in line with what is really there."""

import dataclasses
from collections.abc import Sequence

from engine.answers import Comparison, InitFailedError
from engine.diff import Changes, Diff
from engine.events import StepOp
from engine.executor import Executor
from engine.provider import compare
from engine.session import Session
from engine.state import PendingOperation, ResourceState
from engine.step import Step
from engine.targets import Targets


@dataclasses.dataclass(eq=False, slots=True)
class RefreshStep(Step):
    """Compares a resource with what is really there; `new` is None if nothing is."""

    diff: Diff | None = None
    gone: bool = False

    @property
    def op(self) -> StepOp:
        return "refresh"

    @property
    def logical(self) -> bool:
        return False

    def result_op(self) -> StepOp:
        if self.gone:
            return "delete"
        if self.diff is None or self.diff.changes is not Changes.SOME:
            return "same"
        return "update"

    def apply(self, session: Session) -> None:
        old = self.state
        if not old.custom or old.is_provider or old.pending_replacement:
            return
        provider = session.provider_for(old)
        reasons: tuple[str, ...] = ()
        try:
            live = provider.read(old, old.id, old.inputs, old.outputs)
            id_, outputs, inputs = live.id, live.outputs, live.inputs
        except InitFailedError as error:
            id_, outputs, inputs, reasons = error.id, error.outputs, error.inputs, error.reasons
            listed = "\n* ".join(reasons)
            message = f"Refreshed resource is in an unhealthy state:\n* {listed}"
            session.reporter.say("warning", message, old.urn)
        if outputs is None:
            self.new, self.gone = None, True
            return
        new = dataclasses.replace(
            old,
            id=id_ or old.id,
            inputs=old.inputs if inputs is None else inputs,
            outputs=outputs,
            init_errors=reasons,
        )
        if (new.inputs, new.outputs) != (old.inputs, old.outputs) and not session.preview:
            new.modified = session.now()
        self.new = new
        told, found = new, (new.inputs, new.outputs)
        wanted = Comparison(told, new.id, *found, old.inputs, old.ignore_changes)
        self.diff = diff = compare(provider, wanted)
        self.diffs, self.detailed = diff.changed_keys, diff.detailed


def refresh(session: Session, targets: Targets, executor: Executor) -> None:
    """Read all resources and go on from what was found."""
    steps = [RefreshStep(state, state) for state in session.base.resources if targets.names(state)]
    for step in steps:
        session.ensure_provider(step.state.provider)
    executor.run_layer(steps)
    if executor.terminated.is_set():
        return
    found = {id(s.old): (None if s.gone else s.new) for s in steps}
    olds = session.base.resources
    resources = _repair(olds, [found.get(id(r), r) for r in olds])
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


def _repair(
    olds: Sequence[ResourceState], found: Sequence[ResourceState | None]
) -> tuple[ResourceState, ...]:
    """The resources that are there, without references to those that are not."""
    resources: list[ResourceState] = []
    there: set[str] = set()
    # For each resource the nearest that is left: itself, or what took the place of its parent.
    nearest = {"": ""}
    for old, state in zip(olds, found, strict=True):
        if state is None:
            nearest.setdefault(old.urn, nearest.get(old.parent, ""))
            continue
        _strip(state, there)
        state.parent = nearest.get(state.parent, "")
        resources.append(state)
        there.add(state.urn)
        nearest[state.urn] = state.urn
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
