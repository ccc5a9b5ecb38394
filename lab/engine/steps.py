"""The steps of a plan: what is done to one resource."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lab.engine.answers import InitFailedError, Subject
from lab.engine.diff import Changes, Diff, compare_inputs, ignore_changes
from lab.engine.events import PropertyDiff, StepOp
from lab.engine.keeper import Keeper
from lab.engine.providers import own_outputs
from lab.engine.session import Session
from lab.engine.state import ResourceState
from lab.engine.values import UNKNOWN_STRING, Values


class StepError(Exception):
    """A step that cannot be taken; the message is for the user."""


class ProtectedError(StepError):
    """A delete that the resource is protected from."""


@dataclasses.dataclass(eq=False, slots=True)
class Step:
    """One step. `old` and `new` are live states: `apply` completes `new`."""

    old: ResourceState | None
    new: ResourceState | None
    keys: tuple[str, ...] = ()
    diffs: tuple[str, ...] = ()
    detailed: Mapping[str, PropertyDiff] | None = None

    @property
    def op(self) -> StepOp:
        """What the step is called."""
        raise NotImplementedError

    @property
    def operation(self) -> str:
        """What is written down as pending while the step runs; empty for nothing."""
        return ""

    @property
    def logical(self) -> bool:
        """Whether this is a step of its own, not a part of a replacement."""
        return True

    @property
    def state(self) -> ResourceState:
        """The new state, or the old one where nothing new comes."""
        state = self.new or self.old
        if state is None:
            raise ValueError("a step needs a state")
        return state

    def counts(self) -> bool:
        """Whether the summary counts the step."""
        return self.logical

    def result_op(self) -> StepOp:
        """What turned out to be the case; differs from `op` for a refresh."""
        return self.op

    def apply(self, session: Session) -> None:
        """Take the step; in a preview, find out what it would give.

        Raises:
            StepError: it cannot be taken.
            ProviderError: the provider refuses or fails.
            InitFailedError: it was taken, but the object is not healthy.
        """

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        """Record the end of the step."""


def subject(state: ResourceState) -> Subject:
    """How a provider is told which resource is meant."""
    return Subject(state.urn, state.name, state.type)


@dataclasses.dataclass(eq=False, slots=True)
class SameStep(Step):
    """Nothing to do but to write down what the program says now."""

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "same"

    def apply(self, session: Session) -> None:  # noqa: D102
        old, new = _both(self)
        new.id = old.id
        new.outputs = old.outputs
        if new.inputs == old.inputs:
            new.inputs = old.inputs  # secrets keep their ciphertext
        new.created, new.modified = old.created, old.modified
        if new.is_provider:
            session.registry.activate(new)
            new.outputs = own_outputs(new.inputs)

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        if ok:
            old, new = _both(self)
            # Most runs change little; what is the same is written with the next thing that is not.
            keeper.end(done=[old], new=new, save=not old.says_the_same(new))


@dataclasses.dataclass(eq=False, slots=True)
class SkippedCreateStep(Step):
    """A new resource that no target asks for."""

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "same"


@dataclasses.dataclass(eq=False, slots=True)
class CreateStep(Step):
    """Makes a resource, perhaps as the first or the last part of a replacement.

    With `pend_delete` the old one is deleted at the end of the run.
    """

    replacing: bool = False
    pend_delete: bool = False

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "create-replacement" if self.replacing else "create"

    @property
    def operation(self) -> str:  # noqa: D102
        return "creating"

    @property
    def logical(self) -> bool:  # noqa: D102
        return not self.replacing

    def apply(self, session: Session) -> None:  # noqa: D102
        new = self.state
        failure: InitFailedError | None = None
        if new.is_provider:
            new.id = session.registry.new_id()
            session.registry.activate(new)
            new.outputs = own_outputs(new.inputs)
        elif new.custom:
            failure = self._create(session, new)
        new.created = new.modified = "" if session.preview else session.now()
        if self.old is not None and self.replacing and self.pend_delete:
            self.old.delete = True
        if failure is not None:
            raise failure

    def _create(self, session: Session, new: ResourceState) -> InitFailedError | None:
        provider = session.provider_for(new)
        if session.preview and not provider.supports_preview:
            new.outputs = new.inputs
            return None
        timeout = new.custom_timeouts.get("create", 0)
        try:
            id_, new.outputs = provider.create(
                subject(new), new.inputs, timeout=timeout, preview=session.preview
            )
        except InitFailedError as error:
            new.id, new.outputs, new.init_errors = error.id, error.outputs, error.reasons
            return error
        new.id = "" if session.preview else id_
        return None

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        if not ok:
            keeper.end(operation=self.new)
            return
        done, changed = _replaced(self.old)
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)


@dataclasses.dataclass(eq=False, slots=True)
class UpdateStep(Step):
    """Changes a resource in place."""

    ignored: tuple[str, ...] = ()

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "update"

    @property
    def operation(self) -> str:  # noqa: D102
        return "updating"

    def apply(self, session: Session) -> None:  # noqa: D102
        old, new = _both(self)
        new.id, new.created = old.id, old.created
        new.modified = old.modified if session.preview else session.now()
        if new.is_provider:
            session.registry.activate(new)
            new.outputs = own_outputs(new.inputs)
        elif new.custom:
            self._update(session, old, new)

    def _update(self, session: Session, old: ResourceState, new: ResourceState) -> None:
        provider = session.provider_for(new)
        if session.preview and not provider.supports_preview:
            new.outputs = new.inputs
            return
        try:
            new.outputs = provider.update(
                subject(new),
                old.id,
                old_inputs=old.inputs,
                old_outputs=old.outputs,
                news=new.inputs,
                timeout=new.custom_timeouts.get("update", 0),
                ignored=self.ignored,
                preview=session.preview,
            )
        except InitFailedError as error:
            new.id = error.id or new.id
            new.outputs, new.init_errors = error.outputs, error.reasons
            raise

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        old, new = _both(self)
        if ok:
            keeper.end(operation=new, done=[old], new=new)
        else:
            keeper.end(operation=new)


@dataclasses.dataclass(eq=False, slots=True)
class ReplaceStep(Step):
    """Says that a resource is replaced; the parts do the work."""

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "replace"


@dataclasses.dataclass(eq=False, slots=True)
class DeleteStep(Step):
    """Deletes a resource, or forgets it where it is not the engine's to delete.

    With `pend_replacement` its successor is made later in this run, or in the next.
    """

    replacing: bool = False
    pend_replacement: bool = False

    @property
    def op(self) -> StepOp:  # noqa: D102
        if self.state.external:
            return "discard-replaced" if self.replacing else "discard"
        return "delete-replaced" if self.replacing else "delete"

    @property
    def operation(self) -> str:  # noqa: D102
        return "deleting"

    @property
    def logical(self) -> bool:  # noqa: D102
        return not self.replacing

    def apply(self, session: Session) -> None:  # noqa: D102
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
                    subject(old),
                    old.id,
                    inputs=old.inputs,
                    outputs=old.outputs,
                    timeout=old.custom_timeouts.get("delete", 0),
                )
        if self.pend_replacement:
            old.pending_replacement = True

    def _is_ours(self, session: Session, old: ResourceState) -> bool:
        with_another = bool(old.deleted_with) and old.deleted_with in session.progress.deleted
        return (
            old.custom
            and not old.is_provider
            and not (old.external or old.retain_on_delete or with_another)
        )

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
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
    def op(self) -> StepOp:  # noqa: D102
        return "remove-pending-replace"

    @property
    def logical(self) -> bool:  # noqa: D102
        return False

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        if ok:
            keeper.end(done=[self.state])


@dataclasses.dataclass(eq=False, slots=True)
class ReadStep(Step):
    """Looks up a resource that somebody else manages."""

    replacing: bool = False

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "read-replacement" if self.replacing else "read"

    @property
    def operation(self) -> str:  # noqa: D102
        return "reading"

    @property
    def logical(self) -> bool:  # noqa: D102
        return not self.replacing

    def counts(self) -> bool:
        """Only a read that found something else than the last one is counted."""
        if self.old is None or self.new is None:
            return False
        return self.logical and self.old.outputs != self.new.outputs

    def apply(self, session: Session) -> None:  # noqa: D102
        new = self.state
        failure: InitFailedError | None = None
        if new.id == UNKNOWN_STRING:
            new.outputs = {}
        else:
            failure = self._read(session, new)
        if self.old is not None and self.replacing:
            self.old.delete = True
        if failure is not None:
            raise failure

    def _read(self, session: Session, new: ResourceState) -> InitFailedError | None:
        wanted = new.id
        try:
            live = session.provider_for(new).read(subject(new), wanted, new.inputs, new.inputs)
        except InitFailedError as error:
            new.outputs, new.init_errors = error.outputs, error.reasons
            return error
        if live.outputs is None:
            raise StepError(f"resource '{wanted}' does not exist")
        new.outputs = live.outputs
        new.id = live.id or wanted
        return None

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        if not ok:
            keeper.end(operation=self.new)
            return
        if self.replacing:
            done, changed = _replaced(self.old)
        else:
            done, changed = [self.old] if self.old else [], []
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)


@dataclasses.dataclass(eq=False, slots=True)
class RefreshStep(Step):
    """Compares a resource with what is really there; `new` is None if nothing is."""

    diff: Diff | None = None
    gone: bool = False

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "refresh"

    @property
    def logical(self) -> bool:  # noqa: D102
        return False

    def result_op(self) -> StepOp:
        """What the refresh found."""
        if self.gone:
            return "delete"
        if self.diff is None or self.diff.changes is not Changes.SOME:
            return "same"
        return "update"

    def apply(self, session: Session) -> None:  # noqa: D102
        old = self.state
        if not old.custom or old.is_provider or old.pending_replacement:
            return
        provider = session.provider_for(old)
        reasons: tuple[str, ...] = ()
        try:
            live = provider.read(subject(old), old.id, old.inputs, old.outputs)
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
        if old.external:
            return
        diff = provider.diff(
            subject(new),
            new.id,
            old_inputs=new.inputs,
            old_outputs=new.outputs,
            news=old.inputs,
            ignored=old.ignore_changes,
        )
        if diff.changes is Changes.UNKNOWN:
            diff = compare_inputs(new.inputs, _ignoring(old, new.inputs))
        self.diff = diff
        self.diffs, self.detailed = diff.changed_keys, diff.detailed


@dataclasses.dataclass(eq=False, slots=True)
class ImportStep(Step):
    """Takes over an object that exists, if the program describes it as it is."""

    replacing: bool = False
    goal_inputs: Values = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def op(self) -> StepOp:  # noqa: D102
        return "import-replacement" if self.replacing else "import"

    @property
    def operation(self) -> str:  # noqa: D102
        return "importing"

    @property
    def logical(self) -> bool:  # noqa: D102
        return not self.replacing

    def apply(self, session: Session) -> None:  # noqa: D102
        new = self.state
        provider = session.provider_for(new)
        live = provider.read(subject(new), new.import_id, {}, {})
        if live.outputs is None:
            raise StepError(f"resource '{new.import_id}' does not exist")
        if live.inputs is None:
            raise StepError(
                f"provider does not support importing resources; please try updating the"
                f" '{new.provider.split('::')[-2]}' plugin"
            )
        new.id = live.id or new.import_id
        new.outputs = live.outputs
        new.created = new.modified = "" if session.preview else session.now()
        wanted = ignore_changes(self.goal_inputs, live.inputs, self.ignored)
        checked = provider.check(subject(new), live.inputs, wanted, seed=b"")
        if checked.failures:
            failure = checked.failures[0]
            raise StepError(f"property {failure.property} has a problem: {failure.reason}")
        new.inputs = checked.inputs
        self._compare(session, new, live.inputs)
        if self.old is not None and self.replacing:
            self.old.delete = True

    def _compare(self, session: Session, new: ResourceState, found: Values) -> None:
        diff = session.provider_for(new).diff(
            subject(new),
            new.id,
            old_inputs=found,
            old_outputs=new.outputs,
            news=new.inputs,
            ignored=self.ignored,
        )
        if diff.changes is Changes.UNKNOWN:
            diff = compare_inputs(found, new.inputs)
        self.diffs, self.detailed = diff.changed_keys, diff.detailed
        if diff.changes is Changes.SOME:
            message = f"inputs to import do not match the existing resource: {', '.join(diff.changed_keys)}"
            if not session.preview:
                raise StepError(message)
            session.reporter.say(
                "warning", f"{message}; importing this resource will fail", new.urn
            )

    def commit(self, keeper: Keeper, *, ok: bool) -> None:  # noqa: D102
        if not ok:
            keeper.end(operation=self.new)
            return
        if self.replacing:
            done, changed = _replaced(self.old)
        else:
            done, changed = [self.old] if self.old else [], []
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)


def _both(step: Step) -> tuple[ResourceState, ResourceState]:
    if step.old is None or step.new is None:
        raise ValueError(f"the step {step.op} needs two states")
    return step.old, step.new


def _replaced(old: ResourceState | None) -> tuple[list[ResourceState], list[ResourceState]]:
    """The old state of a replacement: no longer there, or marked to be deleted later."""
    if old is None:
        return [], []
    return ([old], []) if old.pending_replacement else ([], [old])


def _ignoring(old: ResourceState, found: Values) -> Values:
    return ignore_changes(old.inputs, found, old.ignore_changes)
