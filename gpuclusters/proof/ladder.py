"""The ladder of a rootless cluster: nine rungs from the host's driver to a training job over all nodes.

Every rung rests on the one below, so a climb ends at the first that does not hold, and what failed names
its rung, the host or node, what was seen and what to do. Rungs 1 to 4 are asked on the hosts over SSH,
rungs 5 to 9 of the cluster through its API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import yaml

from gpuclusters.proof.checks import Check, Outcome


class CheckLevel(IntEnum):
    """The rungs, from below."""

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
"""Asked over SSH."""
CLUSTER_RUNGS = tuple(rung for rung in CheckLevel if rung not in HOST_RUNGS)
"""Asked of the API server."""


class Step(NamedTuple):
    """What a rung is about."""

    what: str
    """The statement that its checks make."""
    asked: str
    """The command or the object that is read."""
    read: str
    """When the answer holds."""
    remedy: str
    """What to do when it does not, and nothing better is known of the case."""


def _steps() -> Mapping[CheckLevel, Step]:
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return {rung: Step(**rows[rung.name.lower().replace("_", "-")]) for rung in CheckLevel}


STEPS = _steps()


def passed(rung: CheckLevel, subject: str, said: str, **figures: float) -> Check:
    """A check that holds."""
    return Check(rung.level, subject, STEPS[rung].what, Outcome.PASSED, said, figures)


def failed(rung: CheckLevel, subject: str, said: str, remedy: str = "") -> Check:
    """A check that does not hold, with the way out."""
    way = remedy or STEPS[rung].remedy
    return Check(rung.level, subject, STEPS[rung].what, Outcome.FAILED, f"{said}; {way}")


def not_tried(rung: CheckLevel, said: str, subject: str = "cluster") -> Check:
    """A rung that was not reached."""
    return Check(rung.level, subject, STEPS[rung].what, Outcome.NOT_TRIED, said)


def above(rung: CheckLevel, highest: CheckLevel, said: str) -> Iterator[Check]:
    """The rungs over this one, none of which was tried."""
    for higher in CheckLevel:
        if rung < higher <= highest:
            yield not_tried(higher, said)
