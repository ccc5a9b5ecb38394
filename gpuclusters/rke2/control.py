"""The cluster, asked on a server of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.rke2.model import ClusterNode

POLL_SECONDS = 2.0
API_TIMEOUT_SECONDS = 60.0
"""How long a server that restarts is given before it counts as gone."""


class Control(Protocol):
    """What others than RKE2's own resource need of a cluster."""

    @property
    def place(self) -> str:
        """The server as errors name it."""

    def is_ready(self) -> bool:
        """Whether its API answers."""

    def node(self, name: str) -> ClusterNode | None:
        """A node, or None."""

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None:
        """Close the node, note why, and evict its pods within that time."""

    def uncordon(self, name: str) -> None:
        """Open the node and take the note away."""


C = TypeVar("C", bound=Control)


def answering(controls: Sequence[C], clock: Clock, reporter: Reporter) -> C:
    """The first server that answers.

    Raises:
        Refused: none does within a minute.
    """
    target = ", ".join(control.place for control in controls)
    ready: list[C] = []
    problem = "the API of no server answers there"
    remedy = "look at `systemctl status rke2-server` on them, then run again"
    silent = Finding("rke2.no-server", problem, remedy, level=Level.REPAIR)

    def look() -> Sequence[Finding]:
        ready.extend(one for one in controls if not ready and one.is_ready())
        return () if ready else (silent,)

    left = poll(
        look,
        target=target,
        timeout_seconds=API_TIMEOUT_SECONDS,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
    )
    if left:
        raise Refused(target, left)
    return ready[0]
