"""What a deployment tells while it runs; the shell turns it into a tree, lines or JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

from engine.state import ResourceState

Severity: TypeAlias = Literal["debug", "info", "info#err", "warning", "error"]

StepOp: TypeAlias = Literal[
    "same",
    "create",
    "update",
    "delete",
    "replace",
    "create-replacement",
    "delete-replaced",
    "refresh",
    "remove-pending-replace",
]

DiffKind: TypeAlias = Literal[
    "add", "add-replace", "delete", "delete-replace", "update", "update-replace"
]


@dataclasses.dataclass(frozen=True, slots=True)
class PropertyDiff:
    """How one property differs; `input_diff` if inputs were compared, not the real object."""

    kind: DiffKind
    input_diff: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Prelude:
    """First event: the stack's configuration, secrets as `[secret]`."""

    config: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """A message for the user, about a resource if it has a URN.

    `prefix` stands before the message where there is no other sign of its severity
    (`error: `).
    """

    severity: Severity
    message: str
    urn: str = ""
    prefix: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class StepMetadata:
    """One step of the plan, with copies of the states it goes from and to.

    `keys` are the properties that ask for a replacement, `diffs` all that differ.
    `detailed_diff` is None where nobody gave one; an empty one is not the same. `logical` is
    false for the parts of a replacement, which summaries leave out.
    """

    op: StepOp
    urn: str
    type: str
    provider: str
    old: ResourceState | None
    new: ResourceState | None
    keys: tuple[str, ...] = ()
    diffs: tuple[str, ...] = ()
    detailed_diff: Mapping[str, PropertyDiff] | None = None
    logical: bool = True

    @property
    def state(self) -> ResourceState:
        """The new state, or the old one where nothing new comes."""
        state = self.new or self.old
        if state is None:
            raise ValueError(f"the step {self.op} of {self.urn} has no state")
        return state


@dataclasses.dataclass(frozen=True, slots=True)
class ResourcePre:
    """A step is about to run (in a preview: would run)."""

    metadata: StepMetadata
    planning: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceOutputs:
    """A step has ended well; for components: their outputs are there."""

    metadata: StepMetadata
    planning: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceFailed:
    metadata: StepMetadata


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """How many resources took which kind of step, and how it ended."""

    changes: Mapping[str, int]
    result: Literal["succeeded", "failed"]
    duration_seconds: int
    is_preview: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel:
    """The last event."""


Event: TypeAlias = (
    Prelude | Diagnostic | ResourcePre | ResourceOutputs | ResourceFailed | Summary | Cancel
)
