"""Steps that take in what exists already: looked up, or imported."""

from __future__ import annotations

import dataclasses

from lab.engine.answers import InitFailedError
from lab.engine.diff import Changes, compare_inputs, ignore_changes
from lab.engine.events import StepOp
from lab.engine.keeper import Keeper
from lab.engine.session import Session
from lab.engine.state import ResourceState
from lab.engine.step import Step, StepError, replaced, subject
from lab.engine.values import UNKNOWN_STRING, Values


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
            done, changed = replaced(self.old)
        else:
            done, changed = [self.old] if self.old else [], []
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)


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
            done, changed = replaced(self.old)
        else:
            done, changed = [self.old] if self.old else [], []
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)
