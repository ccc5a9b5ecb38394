"""The step that takes over an object which exists already."""

from __future__ import annotations

import dataclasses
import os

from lab.engine.answers import SEED_BYTES, Comparison, InitFailedError, Live
from lab.engine.diff import Changes, ignore_changes
from lab.engine.events import StepOp
from lab.engine.keeper import Keeper
from lab.engine.messages import refusals
from lab.engine.resource_provider import compare
from lab.engine.session import Session
from lab.engine.state import ResourceState
from lab.engine.step import Step, StepError, replaced, subject
from lab.engine.values import Values


@dataclasses.dataclass(eq=False, slots=True)
class ImportStep(Step):
    """Takes over an object that exists, if the program describes it as it is.

    `original` is the old state of the resource, if it had another object before. Once the object
    was read, `old` is what was found: that is what the program's description is compared with.
    """

    original: ResourceState | None = None
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
        found = self._read(session, new)
        new.created = new.modified = "" if session.preview else session.now()
        self.old = dataclasses.replace(new, inputs=found, outputs=new.outputs)
        wanted = ignore_changes(self.goal_inputs, found, self.ignored)
        provider = session.provider_for(new)
        checked = provider.check(subject(new), found, wanted, seed=os.urandom(SEED_BYTES))
        if checked.failures:
            new.inputs = wanted
            for text in refusals(new, checked.failures):
                session.reporter.say("error", text, new.urn)
            raise StepError("one or more inputs failed to validate")
        new.inputs = checked.inputs
        self._compare(session, new, found)
        if self.original is not None and self.replacing:
            self.original.delete = True

    def _read(self, session: Session, new: ResourceState) -> Values:
        try:
            live = session.provider_for(new).read(subject(new), new.import_id, {}, {})
        except InitFailedError as error:
            # It is there, and will be updated by the next run.
            new.init_errors = error.reasons
            live = Live(error.id, error.outputs, error.inputs)
        if live.outputs is None:
            raise StepError(f"resource '{new.import_id}' does not exist")
        if live.inputs is None:
            raise StepError(
                "provider does not support importing resources; please try updating the"
                f" '{new.type.split(':', 1)[0]}' plugin"
            )
        new.id = live.id or new.import_id
        new.outputs = live.outputs
        return live.inputs

    def _compare(self, session: Session, new: ResourceState, found: Values) -> None:
        known = (new.id, found, new.outputs)
        wanted = Comparison(subject(new), *known, new.inputs, self.ignored)
        diff = compare(session.provider_for(new), wanted)
        self.diffs, self.detailed = diff.changed_keys, diff.detailed
        if diff.changes is Changes.SOME:
            listed = " ".join(diff.changed_keys)
            message = f"inputs to import do not match the existing resource: [{listed}]"
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
            done, changed = replaced(self.original)
        else:
            done, changed = [self.original] if self.original else [], []
        keeper.end(operation=self.new, done=done, changed=changed, new=self.new)
