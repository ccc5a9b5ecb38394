"""The ladder of proofs that GPUs work: its levels, what each runs, what came of it.

A validator that passed and a number that fits (L0) are not yet a GPU that computes right (L1), passes
DCGM's diagnostics and is seen under load (L2), holds its limits (L3) and reaches its neighbours (L4). A
level includes those below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much is shown. They compare as their names do."""

    L0 = "L0"
    """The operator is ready and every node offers its GPUs; nothing runs."""
    L1 = "L1"
    """Seconds: every GPU multiplies matrices, right and fast enough."""
    L2 = "L2"
    """Minutes: DCGM's diagnostics, and a load that the metrics show."""
    L3 = "L3"
    """A burn-in."""
    L4 = "L4"
    """The GPUs of each node reduce together."""


class ProofTest(StrEnum):
    """What runs as Jobs."""

    MATMUL = "matmul"
    DIAGNOSTICS = "diagnostics"
    LOAD = "load"
    BURN = "burn"
    COLLECTIVE = "collective"


LEVEL_OF: Mapping[ProofTest, Level] = {
    ProofTest.MATMUL: Level.L1,
    ProofTest.DIAGNOSTICS: Level.L2,
    ProofTest.LOAD: Level.L2,
    ProofTest.BURN: Level.L3,
    ProofTest.COLLECTIVE: Level.L4,
}
"""In the order in which they run."""


class Outcome(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_TRIED = "not-tried"
    """It could not be tried, or the tool skipped it. That is no pass."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    level: str
    subject: str
    """Node, with the GPU if it is about one; `cluster` for the whole."""
    what: str
    outcome: Outcome
    said: str
    """What was found, with its numbers."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Numbers for programs; the unit is in the name."""

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        return {**asdict(self), "outcome": self.outcome.value, "figures": dict(self.figures)}


@dataclass(frozen=True, slots=True)
class ProofResult:
    """What a run found."""

    checks: tuple[Check, ...]
    remarks: tuple[str, ...]
    """What it does not show."""
    observed: Mapping[str, Mapping[str, str]]
    """Each node as it was; a difference later makes the proof stale."""


def proven(checks: Sequence[Check]) -> bool:
    """Whether something was looked at and all of it passed."""
    return bool(checks) and all(check.outcome is Outcome.PASSED for check in checks)


def faults(checks: Sequence[Check]) -> Sequence[str]:
    """What did not pass, a line each."""
    return [
        f"{check.level} {check.subject}: {check.what}: {check.outcome} ({check.said})"
        for check in checks
        if check.outcome is not Outcome.PASSED
    ]
