"""Steps that make and change resources."""

import dataclasses

from engine.answers import Comparison, InitFailedError
from engine.events import StepOp
from engine.keeper import Keeper
from engine.providers import own_outputs
from engine.session import Session
from engine.state import ResourceState
from engine.step import Step, both, replaced


@dataclasses.dataclass(eq=False, slots=True)
class SameStep(Step):
    """Nothing to do but to write down what the program says now."""

    @property
    def op(self) -> StepOp:
        return "same"

    def apply(self, session: Session) -> None:
        old, new = both(self)
        new.id = old.id
        new.outputs = old.outputs
        if new.inputs == old.inputs:
            new.inputs = old.inputs  # secrets keep their ciphertext
        new.created, new.modified, new.extra = old.created, old.modified, old.extra
        if new.is_provider:
            session.registry.activate(new)
            new.outputs = own_outputs(new.inputs)

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        if ok:
            old, new = both(self)
            # Most runs change little; what is the same is written with the next thing that is not.
            if old.says_the_same(new):
                keeper.keep(old, new)
            else:
                keeper.end(done=[old], new=new)


@dataclasses.dataclass(eq=False, slots=True)
class SkippedCreateStep(Step):
    """A new resource that no target asks for."""

    @property
    def op(self) -> StepOp:
        return "same"


@dataclasses.dataclass(eq=False, slots=True)
class CreateStep(Step):
    """Makes a resource, perhaps as the first or the last part of a replacement.

    With `pend_delete` the old one is deleted at the end of the run.
    """

    replacing: bool = False
    pend_delete: bool = False

    @property
    def op(self) -> StepOp:
        return "create-replacement" if self.replacing else "create"

    @property
    def operation(self) -> str:
        return "creating"

    @property
    def logical(self) -> bool:
        return not self.replacing

    def apply(self, session: Session) -> None:
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
                new, new.inputs, timeout=timeout, preview=session.preview
            )
        except InitFailedError as error:
            new.id, new.outputs, new.init_errors = error.id, error.outputs, error.reasons
            return error
        new.id = "" if session.preview else id_
        return None

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        if not ok:
            keeper.end(operation=self.new)
            return
        done, changed = replaced(self.old)
        # What is only in the state is written with the first thing that is more.
        keeper.end(
            operation=self.new, done=done, changed=changed, new=self.new, save=self.state.is_real
        )


@dataclasses.dataclass(eq=False, slots=True)
class UpdateStep(Step):
    ignored: tuple[str, ...] = ()

    @property
    def op(self) -> StepOp:
        return "update"

    @property
    def operation(self) -> str:
        return "updating"

    def apply(self, session: Session) -> None:
        old, new = both(self)
        new.id, new.created, new.extra = old.id, old.created, old.extra
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
            known = (old.id, old.inputs, old.outputs)
            wanted = Comparison(new, *known, new.inputs, self.ignored)
            timeout = new.custom_timeouts.get("update", 0)
            new.outputs = provider.update(wanted, timeout=timeout, preview=session.preview)
        except InitFailedError as error:
            new.outputs, new.init_errors = error.outputs, error.reasons
            raise

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        old, new = both(self)
        if ok:
            keeper.end(operation=new, done=[old], new=new)
        else:
            keeper.end(operation=new)


@dataclasses.dataclass(eq=False, slots=True)
class ReplaceStep(Step):
    """Says that a resource is replaced; the parts do the work."""

    @property
    def op(self) -> StepOp:
        return "replace"
