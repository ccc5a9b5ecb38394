"""What joining needs from the outside, by role: the host, and the cluster as a server of it knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_node import Artifacts, ClusterNode, LiveHost


class JoinError(Exception):
    """A host did not get where it should: which, how far it came, why, and what to do."""

    def __init__(self, where: str, tried: str, problem: str, remedy: str) -> None:
        super().__init__(where, tried, problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self._text = f"{where}: could not {tried}: {problem}; {remedy}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True, slots=True)
class Progress:
    """A unit on its way."""

    active: str
    restarts: int
    journal: str
    """Its lines since the start."""


class Host(Protocol):
    """The host itself."""

    @property
    def place(self) -> str:
        """As errors name it."""

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        """What is there."""

    def unreachable(self, address: str) -> str:
        """Why the servers cannot be reached from it at this address; empty if they can."""

    def claim(self, owner: str) -> None:
        """Mark the host as one of ours, before anything else is changed."""

    def fetch(self, version: str, artifacts: Artifacts) -> None:
        """Bring the release's artifacts, compared with their digests, beside what is installed."""

    def prepare(self, *, cis: bool) -> None:
        """User, group and kernel parameters; what NetworkManager and inotify need."""

    def write(self, path: str, content: str, *, mode: str) -> None:
        """Write a file."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def install(self, version: str, artifacts: Artifacts, *, cis: bool) -> None:
        """Unpack what was fetched in place of what is installed."""

    def start(self, role: Role) -> str:
        """Enable and restart, without waiting; answers from when on the journal matters."""

    def progress(self, role: Role, since: str) -> Progress:
        """How far the unit is."""

    def finish(self, digest: str) -> None:
        """Mark that RKE2 has joined with this configuration."""

    def kubeconfig(self) -> str:
        """The admin kubeconfig of a server."""

    def uninstall(self) -> None:
        """Remove RKE2 and all it left."""


class Control(Protocol):
    """The cluster, asked on a server of it."""

    @property
    def place(self) -> str:
        """The server as errors name it."""

    def clock(self) -> int:
        """Its time, in seconds since 1970."""

    def is_installed(self) -> bool:
        """Whether RKE2 is on this machine at all."""

    def is_ready(self) -> bool:
        """Whether its API answers."""

    def node(self, name: str) -> ClusterNode | None:
        """A node, or None."""

    def servers(self) -> Mapping[str, ClusterNode]:
        """The servers, by node name."""

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None:
        """Close the node, note why, and evict its pods within that time."""

    def uncordon(self, name: str) -> None:
        """Open the node and take the note away."""

    def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None takes one away."""

    def taint(self, name: str, changes: Sequence[str]) -> None:
        """Set taints, `key=value:effect`, and take away those with a `-` behind key and effect."""

    def delete(self, name: str) -> None:
        """Delete the node, and the password that its name is bound to."""
