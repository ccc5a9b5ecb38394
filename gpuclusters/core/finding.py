"""A fault is a value: what is wrong, where, how bad it is, and which step repairs it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuclusters.core import codes

Path = tuple[str | int, ...]


class Level(StrEnum):
    """What a finding does to `up`."""

    BLOCK = "block"
    """Nothing is changed while it is there."""
    REPAIR = "repair"
    """`up` repairs it; between two runs it is drift."""
    WARN = "warn"
    """It is told and stops nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    """Names the fault, like `vfio.unbound`; listed with its meaning in `core/codes`."""
    problem: str
    """What is wrong, with what was found, as the rest of a sentence that begins with the target."""
    remedy: str = ""
    """What to do, in the imperative; for a REPAIR, what to do when the repair did not help."""
    path: Path = ()
    """What it is about: configuration keys, a file, a unit, a PCI address."""
    level: Level = Level.BLOCK
    step: str = ""
    """The step of the capability that repairs it."""
    missing: bool = False
    """Nothing is there at all: making it takes nothing over that somebody else made."""

    def __str__(self) -> str:
        said = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        return f"{said} [{self.code}]"

    def to_output(self) -> dict[str, Any]:
        """As it stands among the outputs of a resource."""
        path = [str(part) for part in self.path]
        level = str(self.level)
        return {"code": self.code, "problem": self.problem, "path": path, "level": level}


def blocked(code: str, path: str = "", case: str = "", **values: Any) -> Finding:
    """What forbids to go on, in the words that are listed with the code; they have places for the values."""
    values = {"path": path, "where": "the host", **values}
    return Finding(code, *codes.said(code, case, values), (path,) if path else ())


def repair(
    code: str,
    path: str = "",
    case: str = "",
    *,
    step: str,
    remedy: str = "",
    missing: bool = False,
    **values: Any,
) -> Finding:
    """What a step of the capability puts right, in the words that are listed with the code."""
    problem, stays = codes.said(code, case, {"path": path, **values}, repaired=True)
    about = (path,) if path else ()
    return Finding(code, problem, remedy or stays, about, Level.REPAIR, step, missing)


class Refused(Exception):  # noqa: N818 (what happened, not what kind of error it is)
    """We will not do this, for these reasons; the step that refused has changed nothing."""

    error_id = ""
    """None of its own: its text has the codes."""

    def __init__(self, target: str, findings: Iterable[Finding]) -> None:
        self.target = target
        self.findings = tuple(findings)
        super().__init__(target, self.findings)

    def __str__(self) -> str:
        return "\n".join(f"{self.target}: {finding}" for finding in self.findings)


def refused(
    target: str,
    code: str,
    problem: str = "",
    remedy: str = "",
    *,
    path: str = "",
    case: str = "",
    **values: Any,
) -> Refused:
    """A refusal for one reason; what it does not say itself is said as it is listed with the code."""
    if not (problem and remedy):
        found = blocked(code, path, case, **values)
        problem, remedy = problem or found.problem, remedy or found.remedy
    return Refused(target, [Finding(code, problem, remedy, (path,) if path else ())])
