"""How long a training takes, by number of nodes: what was measured by others, and what evidence tells.

The network between rootless nodes is the cost: every packet passes two user-space hops, so that the time
grows with the nodes where that of a managed cluster hardly does.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gpuclusters.compat.dated_table import Row, Table
from gpuclusters.proof.checks import CheckLevel

ROOM = 4
"""How many times the measured time a run may take: another image, other disks, a slower zone."""
PULL_SECONDS = 900
"""An image with PyTorch is 3 to 8 GB, pulled by every node at its first run: the warm-up."""


class Measured(Row):
    """One row: seconds of a whole job."""

    nodes: int
    usernetes: int
    gke: int


class Times(Table):
    epochs: int
    measured: tuple[Measured, ...]


class Run(BaseModel):
    """One training of which there is evidence."""

    model_config = ConfigDict(frozen=True)

    cluster: str = "?"
    at: str = "?"
    nodes: int = 0
    gpus: int = 0
    seconds: float
    accuracy: float = 0.0
    epochs: int = 0
    simulated: bool = False
    source: str = ""


table = cache(partial(Times.packaged, "training_times"))


def expected_seconds(
    nodes: int, epochs: int, of: Literal["usernetes", "gke"] = "usernetes"
) -> float:
    """What a run on so many nodes should take: between rows in a straight line, beyond them like the last."""
    rows = table().measured
    low, high = next(((a, b) for a, b in pairwise(rows) if nodes <= b.nodes), (rows[-2], rows[-1]))
    first, last = (float(getattr(row, of)) for row in (low, high))
    slope = (last - first) / (high.nodes - low.nodes)
    seconds = first + slope * (nodes - low.nodes)
    return max(seconds, 1.0) * epochs / table().epochs


def patience_seconds(nodes: int, epochs: int) -> int:
    """How long a run may take before it is given up, the pull of its image included."""
    return int(ROOM * expected_seconds(nodes, epochs)) + PULL_SECONDS


def run_of(document: Mapping[str, Any], source: str = "") -> Run | None:
    """The training in a piece of evidence; None if it has none that passed."""
    for check in document.get("checks") or ():
        figures = check.get("figures") or {}
        if check.get("level") != CheckLevel.TRAINING.level or check.get("outcome") != "passed":
            continue
        if "seconds" in figures:
            about = {key: document[key] for key in ("cluster", "at") if key in document}
            return Run.model_validate({**figures, **about, "source": source})
    return None


def ordered(runs: Iterable[Run]) -> Sequence[Run]:
    """By nodes, then by time of day."""
    return sorted(runs, key=lambda run: (run.nodes, run.at))


def words(seconds: float) -> str:
    """`2m55`, as the tables of the measurements write it; below ten seconds with a decimal."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    return f"{whole // 60}m{whole % 60:02d}"
