"""What a step is: something that is done to one resource."""

import dataclasses
from collections.abc import Mapping

from engine.events import PropertyDiff, StepMetadata, StepOp
from engine.keeper import Keeper
from engine.session import Session
from engine.state import ResourceState


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

    def result_op(self) -> StepOp:
        """What turned out to be the case; differs from `op` for a refresh."""
        return self.op

    def metadata(self) -> StepMetadata:
        """The step as events tell it, with the states as they are now."""
        state = self.state
        return StepMetadata(
            op=self.op,
            urn=state.urn,
            type=state.type,
            provider=state.provider,
            old=self.old.copy() if self.old else None,
            new=self.new.copy() if self.new else None,
            keys=self.keys,
            diffs=self.diffs,
            detailed_diff=self.detailed,
            logical=self.logical,
        )

    def apply(self, session: Session) -> None:
        """Take the step; in a preview, find out what it would give.

        Raises:
            StepError: it cannot be taken.
            ProviderError: the provider refuses or fails.
            InitFailedError: it was taken, but the object is not healthy.
        """

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        """Record the end of the step."""


def both(step: Step) -> tuple[ResourceState, ResourceState]:
    """The two states of a step that has both."""
    if step.old is None or step.new is None:
        raise ValueError(f"the step {step.op} needs two states")
    return step.old, step.new


def replaced(old: ResourceState | None) -> tuple[list[ResourceState], list[ResourceState]]:
    """The old state of a replacement: no longer there, or marked to be deleted later."""
    if old is None:
        return [], []
    return ([old], []) if old.pending_replacement else ([], [old])
