"""What a node needs from the outside, by role: its host, and the cluster as the control plane knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from gpuclusters.domain.usernetes_cluster import ClusterNode
from gpuclusters.domain.usernetes_join import Invitation
from gpuclusters.domain.usernetes_node import SourceArchive
from gpuclusters.domain.usernetes_node_live import LiveNode


class NodeHost(Protocol):
    """The host itself, as the account that owns the node."""

    @property
    def place(self) -> str:
        """As errors name it."""

    def inspect(self) -> LiveNode:
        """What is there."""

    def claim(
        self, owner: str, machine: str, release: str, host_ip: str, variables: Sequence[str]
    ) -> None:
        """Mark the node as ours, with what it is made of, before anything else is changed."""

    def mark(self, name: str, text: str | None) -> None:
        """Remember `began` or `joined`; None forgets it."""

    def fetch(self, source: SourceArchive) -> None:
        """Bring upstream's files, compared with their digest, in place of those of another tag."""

    def write_overlay(self, name: str, content: str) -> None:
        """Write one of our files."""

    def make(self, targets: Sequence[str], timeout_seconds: float) -> None:
        """Run targets of upstream's Makefile.

        Raises:
            MakeFailedError: one failed; with its last words.
        """

    def set_up_gpus(self) -> None:
        """Let the node set up its GPUs again."""

    def join(self, content: str, timeout_seconds: float) -> None:
        """Run upstream's `kubeadm-join` with this file, which holds a token and is gone afterwards."""

    def unreachable(self, address: str, port: int) -> str:
        """Why the API server cannot be reached from there; empty if it can."""

    def kubeconfig(self) -> str:
        """The admin kubeconfig of a control plane."""

    def remove(self) -> None:
        """Take the container, its volumes and all our files away."""


class NodeControl(Protocol):
    """The cluster, asked on the control plane's host."""

    @property
    def place(self) -> str:
        """The control plane as errors name it."""

    @property
    def exclusive(self) -> AbstractContextManager[object]:
        """Held while one node is disturbed, so that no two are at once."""

    def clock(self) -> int:
        """Its time, in seconds since 1970."""

    def is_installed(self) -> bool:
        """Whether there is a control plane at all; one that cannot be reached may be there."""

    def is_ready(self) -> bool:
        """Whether its API answers."""

    def version(self) -> str:
        """Release of the API server."""

    def node(self, name: str) -> ClusterNode | None:
        """A node, or None."""

    def events(self, name: str) -> str:
        """Warnings about a node, one a line."""

    def invite(self, lifetime: str) -> Invitation:
        """A new token, which is good for so long."""

    def revoke(self, token_id: str) -> None:
        """End the life of a token."""

    def sync(self) -> None:
        """Give all nodes their external address and take the taint of new ones away."""

    def restart_flannel(self, name: str) -> None:
        """Let flannel on a node start anew."""

    def untaint(self, name: str, key: str) -> None:
        """Take all taints of a key away."""

    def taint(self, name: str, taint: str) -> None:
        """Set a taint, `key:effect`."""

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None:
        """Close the node, note why, and evict its pods within that time."""

    def uncordon(self, name: str) -> None:
        """Open the node and take the note away."""

    def delete(self, name: str) -> None:
        """Delete the node."""


class UsernetesNodeError(Exception):
    """A node did not get where it should: which, how far it came, why, and what to do."""

    def __init__(self, where: str, tried: str, problem: str, remedy: str) -> None:
        super().__init__(where, tried, problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self._text = f"{where}: could not {tried}: {problem}; {remedy}"

    def __str__(self) -> str:
        return self._text


class MakeFailedError(Exception):
    """A target of upstream's Makefile ended with an error; what it said last."""

    def __init__(self, target: str, said: str) -> None:
        super().__init__(target, said)
        self.target = target
        self.said = said
