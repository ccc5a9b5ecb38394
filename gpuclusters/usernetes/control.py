"""A Usernetes cluster over SSH: kubectl and kubeadm in the node of its control plane."""

from __future__ import annotations

import json
import threading

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.host.kubectl import KubectlHost
from gpuclusters.usernetes import cluster
from gpuclusters.usernetes.cluster import Invitation
from gpuclusters.usernetes.host import ENVIRONMENT, FAILED, MakeFailedError, without_tokens


class SshNodeControl(KubectlHost):
    """kubectl in the control plane's node."""

    sought = "a control plane"
    drain_timeout = "the timeout for draining"
    script = "usernetes/cluster"
    after = ENVIRONMENT

    @property
    def exclusive(self) -> threading.Lock:
        """The control plane's lock, which all nodes of a cluster share."""
        return self._host.exclusive

    def version(self) -> str:
        """Release of the API server."""
        tried = "ask the API for its version"
        try:
            return str(json.loads(self.ask(["version"], tried))["gitVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(tried) from error

    def events(self, name: str) -> str:
        """Warnings about a node."""
        return self.ask(["events", name], f"read the events of node {name}")

    def invite(self, lifetime: str) -> Invitation:
        """A new token; the answer is kept in memory alone."""
        tried = "make a join token"
        text = self.change(["token", lifetime], tried).stdout.decode(errors="replace")
        try:
            return cluster.parse_invitation(text)
        except ValueError as error:
            raise InvalidAnswerError(
                self.place, tried, str(error), "run `kubeadm token list` in the node there"
            ) from None

    def revoke(self, token_id: str) -> None:
        """End the life of a token; one that is gone already, or will be soon, is no reason to fail."""
        self.change(["revoke", token_id], "delete the join token", accept=(0, FAILED))

    def sync(self) -> None:
        """`make sync-external-ip`."""
        tried = "give the nodes their addresses (`make sync-external-ip`)"
        done = self.change(["sync"], tried, accept=(0, FAILED))
        if done.status == FAILED:
            raise MakeFailedError("sync-external-ip", without_tokens(done.stderr))

    def restart_flannel(self, name: str) -> None:
        """Delete its pod there; the DaemonSet makes another."""
        self.change(["flannel", name], f"restart flannel on node {name}")
