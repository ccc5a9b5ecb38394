"""Kinds of steps: which are shown, with which sign, in which words."""

from dataclasses import dataclass

from engine.events import StepMetadata


@dataclass(frozen=True)
class Kind:
    """How a kind of step is shown: its sign, its colour, and what it is going to do."""

    sign: str
    colour: str
    plan: str

    @property
    def doing(self) -> str:
        return self._ending("ing")

    @property
    def done(self) -> str:
        return self._ending("ed")

    def _ending(self, ending: str) -> str:
        verb, blank, what = self.plan.partition(" ")
        return f"{verb.removesuffix('e')}{ending}{blank}{what}" if verb else ""


KINDS = {
    "same": Kind(" ", "", ""),
    "create": Kind("+", "green", "create"),
    "update": Kind("~", "yellow", "update"),
    "delete": Kind("-", "red", "delete"),
    "replace": Kind("+-", "magenta", "replace"),
    "create-replacement": Kind("++", "bright_green", "create replacement"),
    "delete-replaced": Kind("--", "bright_red", "delete original"),
    "refresh": Kind("~", "yellow", "refresh"),
    "remove-pending-replace": Kind("~", "magenta", "complete replace"),
}
"""In the order in which the summary counts them."""

_PARTS = ("replace", "create-replacement", "delete-replaced", "remove-pending-replace")


def is_replacement_part(metadata: StepMetadata) -> bool:
    """Whether a step is one of those that a replacement consists of, and not the whole of it."""
    return metadata.op in _PARTS and not metadata.logical


def protection_changes(metadata: StepMetadata) -> bool:
    """Whether a step that changes nothing else sets or drops the protection."""
    if metadata.old is None or metadata.new is None:
        return False
    return metadata.old.protect != metadata.new.protect
