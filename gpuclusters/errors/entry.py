"""What is told about one id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """Where an error comes from; each is a chapter of docs/errors.md."""

    CONFIGURATION = "Configuration"
    PREFLIGHT = "Machines before they are touched"
    STEP = "Steps of `up` and `down`"
    COMMAND = "Commands"
    DOCTOR = "Findings of `doctor`"
    DRIFT = "Findings of `drift`"
    POLICY = "Policy rules of `review`"
    LAB = "Lab and embedded engine"


RAISED = {
    Category.CONFIGURATION: "before anything starts: every command that reads the stack file",
    Category.PREFLIGHT: "`doctor`, and the first steps of `up`",
    Category.STEP: "a step of `up`, `preview --refresh` or `down`; `doctor` and `verify` reach machines too",
    Category.COMMAND: "the command itself",
    Category.DOCTOR: "`doctor`",
    Category.DRIFT: "`drift`",
    Category.POLICY: "`review`, and the policy pack",
    Category.LAB: "`up` and `lab …` where the stack lives in the lab, or runs on the embedded engine",
}
"""Where one meets the errors of a category."""

MESSAGE_SAYS = "The message ends with what to do."


@dataclass(frozen=True, slots=True)
class Entry:
    """One id."""

    id: str
    category: Category
    causes: tuple[str, ...]
    """What it means; several where one id stands for several findings of one place."""
    fixes: tuple[str, ...] = (MESSAGE_SAYS,)
    messages: tuple[str, ...] = ()
    """How the message reads; `…` stands for names and values."""
    place: str = ""
    """Cluster types and rows, or the module that raises it."""
    source: str = ""
    """Who says so, where the vendor does."""
    warning: bool = False
    """Whether it stops nothing."""

    @property
    def raised(self) -> str:
        """Where one meets it."""
        return RAISED[self.category]
