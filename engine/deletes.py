"""Deletes what the program no longer has, in layers."""

import dataclasses
from collections.abc import Iterable

from engine.events import StepOp
from engine.executor import Executor
from engine.graph import layers, needs
from engine.keeper import Keeper
from engine.session import Session
from engine.state import ResourceState
from engine.step import ProtectedError, Step
from engine.targets import Targets


@dataclasses.dataclass(eq=False, slots=True)
class DeleteStep(Step):
    """Deletes a resource, or forgets it where it is not the engine's to delete.

    With `pend_replacement` its successor is made later in this run, or in the next.
    """

    replacing: bool = False
    pend_replacement: bool = False

    @property
    def op(self) -> StepOp:
        return "delete-replaced" if self.replacing else "delete"

    @property
    def operation(self) -> str:
        return "deleting"

    @property
    def logical(self) -> bool:
        return not self.replacing

    def apply(self, session: Session) -> None:
        old = self.state
        if old.protect and not self.replacing:
            raise ProtectedError(
                f'resource "{old.urn}" cannot be deleted\nbecause it is protected. To unprotect'
                " the resource, either remove the `protect` flag from the resource in your Pulumi"
                " program and run `pulumi up`, or use the command:\n"
                f"`pulumi state unprotect '{old.urn}'`"
            )
        if self._is_ours(session, old):
            # A preview asks for the provider too: one that cannot be had is news.
            provider = session.provider_for(old)
            if not session.preview:
                provider.delete(
                    old,
                    old.id,
                    inputs=old.inputs,
                    outputs=old.outputs,
                    timeout=old.custom_timeouts.get("delete", 0),
                )
        if self.pend_replacement:
            old.pending_replacement = True

    def _is_ours(self, session: Session, old: ResourceState) -> bool:
        with_another = bool(old.deleted_with) and old.deleted_with in session.progress.deleted
        return old.custom and not old.is_provider and not (old.retain_on_delete or with_another)

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        old = self.state
        if not ok:
            keeper.end(operation=old)
        elif self.pend_replacement:
            # It stays in the state until its successor is there.
            keeper.end(operation=old, changed=[old])
        else:
            keeper.end(operation=old, done=[old])


@dataclasses.dataclass(eq=False, slots=True)
class RemovePendingReplaceStep(Step):
    """Forgets a resource that was deleted for a replacement which the program no longer wants."""

    @property
    def op(self) -> StepOp:
        return "remove-pending-replace"

    @property
    def logical(self) -> bool:
        return False

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        if ok:
            keeper.end(done=[self.state])


class TargetError(Exception):
    """Targets that cannot be deleted without others; the user has been told which."""


def plan_deletes(session: Session, targets: Targets) -> list[Step]:
    """A step for each resource that goes, in the order of the state.

    Raises:
        TargetError: something that is not a target depends on one.
    """
    progress = session.progress
    steps: list[Step] = []
    for state in session.base.resources:
        if state.delete:
            if id(state) not in progress.condemned:
                steps.append(DeleteStep(state, None, replacing=True))
        elif state.urn not in progress.kept:
            if state.pending_replacement:
                steps.append(RemovePendingReplaceStep(state, None))
            else:
                steps.append(DeleteStep(state, None))
    if targets.limited:
        steps = _limit(session, targets, steps)
    stranded = _stranded(session)
    steps = [s for s in steps if s.state.delete or id(s.state) not in stranded]
    progress.deleted.update(step.state.urn for step in steps)
    return steps


def run_deletes(session: Session, executor: Executor, steps: Iterable[Step]) -> None:
    """Delete layer by layer. What something needs that could not be deleted stays."""
    step_of = {id(step.state): step for step in steps}
    for state in (step.state for step in step_of.values()):
        session.ensure_provider(state.provider)
    kept = {urn for state in _stranded(session).values() for urn in needs(state)}
    for layer in layers([step.state for step in step_of.values()]):
        ready = [step_of[id(s)] for s in layer if s.urn not in kept]
        for state in layer:
            if state.urn in kept:
                kept |= needs(state)
        for failed in executor.run_layer(ready):
            kept |= needs(failed.state)
        if executor.cancelled.is_set():
            return


def _stranded(session: Session) -> dict[int, ResourceState]:
    """What was left as it is because something failed, and what hangs on that.

    The program may not have come to register it at all, so its absence says nothing.
    """
    progress = session.progress
    failed = progress.failed | {progress.alias_of.get(urn, urn) for urn in progress.failed}
    olds = [r for r in session.base.resources if r.urn in failed and not r.delete]
    found = {id(state): state for state in olds}
    found.update((id(d), d) for d in session.graph.dependents(*olds, children=True))
    return found


def _limit(session: Session, targets: Targets, steps: list[Step]) -> list[Step]:
    if not session.request.targets:
        return _without_excluded(session, targets, steps)
    going = _with_dependents(session, targets)
    wanted = [s for s in steps if id(s.state) in going]
    if not session.request.target_dependents:
        _refuse_unlisted(session, targets, wanted)
    return wanted


def _with_dependents(session: Session, targets: Targets) -> set[int]:
    """The identities of what is listed and of all that needs it, children included."""
    listed = [r for r in session.base.resources if targets.lists(r.urn)]
    return {id(r) for r in (*listed, *session.graph.dependents(*listed, children=True))}


def _refuse_unlisted(session: Session, targets: Targets, wanted: list[Step]) -> None:
    unlisted = [s.state.urn for s in wanted if not targets.lists(s.state.urn)]
    for urn in unlisted:
        session.saw_error = True
        session.reporter.say(
            "error",
            f"Resource '{urn}' will be destroyed but was not specified in --target list.\nEither"
            " include resource in --target list or pass --target-dependents to proceed.",
            urn,
        )
    if unlisted and not session.preview:
        raise TargetError


def _without_excluded(session: Session, targets: Targets, steps: list[Step]) -> list[Step]:
    excluded = [r for r in session.base.resources if targets.lists(r.urn)]
    staying = {id(r) for r in excluded}
    # What a resource needs cannot go before it; Pulumi keeps parents and providers only.
    staying |= session.graph.dependencies([r for r in session.base.resources if id(r) in staying])
    return [s for s in steps if id(s.state) not in staying]
