"""The ladders of proofs that GPUs work: their levels and rungs, and what came of each check.

A validator that passed and a number that fits (L0) are not yet a GPU that computes right (L1), passes
DCGM's diagnostics and is seen under load (L2), holds its limits (L3) and reaches its neighbours (L4). A
level includes those below it.

The ladder of a rootless cluster has nine rungs, from the host's driver to a training job over all nodes.
Each rests on the one below, so a climb ends at the first that does not hold. Rungs 1 to 4 are asked on the
hosts over SSH, rungs 5 to 9 of the cluster through its API. That of a managed cluster begins at rung 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from gpuclusters.compat import known_errors


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


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_TRIED = "not-tried"
    """It could not be tried, or the tool skipped it. That is no pass."""


@dataclass(frozen=True, slots=True)
class Check:
    level: str
    subject: str
    """Node, with the GPU if it is about one; `cluster` for the whole."""
    what: str
    outcome: Outcome
    said: str
    figures: Mapping[str, float] = field(default_factory=dict)
    """Numbers for programs; the unit is in the name."""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value, "figures": dict(self.figures)}


@dataclass(frozen=True, slots=True)
class ProofResult:
    checks: tuple[Check, ...]
    remarks: tuple[str, ...]
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


class CheckLevel(IntEnum):
    DRIVER = 1
    DOCKER = 2
    CONTAINER = 3
    NODE_CDI = 4
    NODES = 5
    NETWORK = 6
    ALLOCATABLE = 7
    VECTOR_ADD = 8
    TRAINING = 9

    @property
    def level(self) -> str:
        """As checks and evidence name it: `R7`."""
        return f"R{self.value}"


HOST_RUNGS = (CheckLevel.DRIVER, CheckLevel.DOCKER, CheckLevel.CONTAINER, CheckLevel.NODE_CDI)
CLUSTER_RUNGS = tuple(rung for rung in CheckLevel if rung not in HOST_RUNGS)


class Step(NamedTuple):
    what: str
    """The statement that its checks make."""
    asked: str
    """The command or the object that is read."""
    read: str
    """When the answer holds."""
    remedy: str
    """What to do when it does not, and nothing better is known of the case."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one type of cluster, with what to do where one does not hold."""

    kind: Literal["usernetes", "gke"]
    first: CheckLevel
    """Rung that it begins at: where the hosts are a cloud's, nobody can ask them."""
    steps: Mapping[CheckLevel, Step]

    def passed(self, rung: CheckLevel, subject: str, said: str, **figures: float) -> Check:
        return Check(rung.level, subject, self.steps[rung].what, Outcome.PASSED, said, figures)

    def failed(
        self, rung: CheckLevel, subject: str, said: str, way: str = "", told: Sequence[str] = ()
    ) -> Check:
        """A check that does not hold, with the way out: as stated, else of what was told, else the rung's."""
        step, areas = self.steps[rung], ("ladder", f"ladder-{self.kind}")
        known = (known_errors.advice(area, *told) for area in areas)
        way = way or next(filter(None, known), step.remedy)
        return Check(rung.level, subject, step.what, Outcome.FAILED, f"{said}; {way}")

    def above(self, rung: CheckLevel, highest: CheckLevel, said: str) -> Iterator[Check]:
        """The rungs over this one, none of which was tried."""
        for higher in CheckLevel:
            if rung < higher <= highest:
                what = self.steps[higher].what
                yield Check(higher.level, "cluster", what, Outcome.NOT_TRIED, said)


def _ladders() -> tuple[Ladder, Ladder]:
    read = yaml.safe_load(Path(__file__).with_name("ladder.yaml").read_text(encoding="utf-8"))
    own, others = read["usernetes"], read["gke"]
    rows = {rung: rung.name.lower().replace("_", "-") for rung in CheckLevel}
    return (
        Ladder("usernetes", CheckLevel.DRIVER, {r: Step(**own[row]) for r, row in rows.items()}),
        Ladder(
            "gke",
            CheckLevel.NODES,
            {r: Step(**(own[rows[r]] | others.get(rows[r], {}))) for r in CLUSTER_RUNGS},
        ),
    )


USERNETES, GKE = _ladders()
