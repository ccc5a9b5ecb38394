"""Kinds of steps: which are shown, with which sign, in which words."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import StepMetadata


@dataclass(frozen=True)
class Kind:
    """How a kind of step is shown: sign, colour, and the words for before, during and after."""

    sign: str
    colour: str
    plan: str
    doing: str
    done: str


KINDS = {
    "same": Kind(" ", "", "", "", ""),
    "create": Kind("+", "green", "create", "creating", "created"),
    "update": Kind("~", "yellow", "update", "updating", "updated"),
    "delete": Kind("-", "red", "delete", "deleting", "deleted"),
    "replace": Kind("+-", "magenta", "replace", "replacing", "replaced"),
    "create-replacement": Kind(
        "++", "bright_green", "create replacement", "creating replacement", "created replacement"
    ),
    "delete-replaced": Kind(
        "--", "bright_red", "delete original", "deleting original", "deleted original"
    ),
    "refresh": Kind("~", "yellow", "refresh", "refreshing", "refreshed"),
    "discard": Kind("<", "red", "discard", "discarding", "discarded"),
    "discard-replaced": Kind(
        "<<", "red", "discard original", "discarding original", "discarded original"
    ),
    "remove-pending-replace": Kind("~", "magenta", "complete replace", "completing", "completed"),
}

# In the order in which the summary lists them; those that change nothing are left out there.
COUNTED = (
    "create",
    "update",
    "delete",
    "replace",
    "create-replacement",
    "delete-replaced",
    "refresh",
    "discard",
    "discard-replaced",
    "remove-pending-replace",
)

_PARTS = frozenset(
    {
        "replace",
        "create-replacement",
        "delete-replaced",
        "discard-replaced",
        "remove-pending-replace",
    }
)


def is_replacement_part(metadata: StepMetadata) -> bool:
    """Whether a step is one of those that a replacement consists of, and not the whole of it."""
    return metadata.op in _PARTS and not metadata.logical


def protection_changes(metadata: StepMetadata) -> bool:
    """Whether a step that changes nothing else sets or drops the protection."""
    if metadata.old is None or metadata.new is None:
        return False
    return metadata.old.protect != metadata.new.protect
