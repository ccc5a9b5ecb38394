"""The step that looks up what somebody else manages."""

from __future__ import annotations

import dataclasses

from lab.engine.answers import InitFailedError
from lab.engine.events import StepOp
from lab.engine.keeper import Keeper
from lab.engine.session import Session
from lab.engine.state import ResourceState
from lab.engine.step import Step, StepError, replaced, subject
from lab.engine.values import UNKNOWN_STRING


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
