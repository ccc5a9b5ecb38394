"""A Usernetes cluster over SSH: kubectl and kubeadm in the node of its control plane."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.kubectl_host import KubectlHost
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.usernetes import cluster
from gpuclusters.usernetes.cluster import ClusterNode, Invitation
from gpuclusters.usernetes.host import (
    ENVIRONMENT,
    FAILED,
    STEP_TIMEOUT_SECONDS,
    MakeFailedError,
    without_tokens,
)


class SshNodeControl(KubectlHost):
    """kubectl in the control plane's node."""

    sought = "a control plane"
    drain_timeout = "the timeout for draining"
    drained = cluster.DRAINED

    def __init__(self, host: SshHost, account: str) -> None:
        super().__init__(host)
        self._account = account

    @property
    def exclusive(self) -> threading.Lock:
        """The control plane's lock, which all nodes of a cluster share."""
        return self._host.exclusive

    def version(self) -> str:
        """Release of the API server."""
        tried = "ask the API for its version"
        try:
            return str(json.loads(self._ask(["version"], tried))["gitVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(tried) from error

    def node(self, name: str) -> ClusterNode | None:
        """A node, or None."""
        text = self._ask(["node", name], f"look at node {name}")
        try:
            return cluster.parse_node(text)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(f"look at node {name}") from error

    def events(self, name: str) -> str:
        """Warnings about a node."""
        return self._ask(["events", name], f"read the events of node {name}")

    def invite(self, lifetime: str) -> Invitation:
        """A new token; the answer is kept in memory alone."""
        tried = "make a join token"
        text = self._change(["token", lifetime], tried).stdout.decode(errors="replace")
        try:
            return cluster.parse_invitation(text)
        except ValueError as error:
            raise InvalidAnswerError(
                self.place, tried, str(error), "run `kubeadm token list` in the node there"
            ) from None

    def revoke(self, token_id: str) -> None:
        """End the life of a token; one that is gone already, or will be soon, is no reason to fail."""
        self._script(["revoke", token_id], "delete the join token", accept=(0, FAILED))

    def sync(self) -> None:
        """`make sync-external-ip`."""
        tried = "give the nodes their addresses (`make sync-external-ip`)"
        done = self._script(["sync"], tried, accept=(0, FAILED))
        if done.status == FAILED:
            raise MakeFailedError("sync-external-ip", without_tokens(done.stderr))

    def restart_flannel(self, name: str) -> None:
        """Delete its pod there; the DaemonSet makes another."""
        self._change(["flannel", name], f"restart flannel on node {name}")

    def untaint(self, name: str, key: str) -> None:
        """Take all taints of a key away."""
        self._change(["untaint", name, key], f"take the taint {key} from node {name}")

    def taint(self, name: str, taint: str) -> None:
        """Set a taint."""
        self._change(["taint", name, taint], f"taint node {name}")

    def delete(self, name: str) -> None:
        """Delete the node."""
        self._change(["delete", name], f"delete node {name}", timeout_seconds=STEP_TIMEOUT_SECONDS)

    def _ask(self, arguments: Sequence[str], tried: str) -> str:
        done = self._script(arguments, tried, repeatable=True)
        return done.stdout.decode(errors="replace")

    def _change(
        self, arguments: Sequence[str], tried: str, timeout_seconds: float | None = None
    ) -> Completed:
        return self._script(arguments, tried, timeout_seconds=timeout_seconds)

    def _script(
        self,
        arguments: Sequence[str],
        tried: str,
        *,
        repeatable: bool = False,
        accept: Sequence[int] = (0,),
        timeout_seconds: float | None = None,
    ) -> Completed:
        return run_script(
            self._host,
            "usernetes/cluster",
            arguments,
            tried=tried,
            after=ENVIRONMENT,
            repeatable=repeatable,
            accept=accept,
            timeout_seconds=timeout_seconds,
            account=self._account,
        )

    def _unreadable(self, tried: str) -> InvalidAnswerError:
        return InvalidAnswerError(
            self.place,
            tried,
            "kubectl answered something else than an object",
            "run it by hand there: `docker exec usernetes-node kubectl get nodes`",
        )
