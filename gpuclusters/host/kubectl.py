"""A cluster through kubectl on one of its hosts, over SSH: its API need not be reachable from here."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.errors import CommandFailedError, InvalidAnswerError, UnreachableError
from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.host.node import DRAINED, ClusterNode, parse_node
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import Completed, SshHost

POLL_SECONDS = 2.0
API_TIMEOUT_SECONDS = 60.0
"""How long a server that restarts is given before it counts as gone."""
DELETE_SECONDS = 300.0
_DRAIN_ROOM_SECONDS = 60.0


class KubectlHost:
    """What the clusters of all distributions are asked alike; each has a script with these verbs."""

    sought: ClassVar[str]
    """What `is_installed` looks for, in messages."""
    drain_timeout: ClassVar[str]
    """How a user calls the timeout for draining."""
    script: ClassVar[str]
    after: ClassVar[Sequence[str]] = ()
    """Scripts that are sent before it."""

    def __init__(self, host: SshHost, account: str = "") -> None:
        """`account`: who runs kubectl there instead of root."""
        self._host, self._account = host, account

    @property
    def target(self) -> str:
        return self._host.target

    def clock(self) -> int:
        """Seconds since 1970."""
        return int(self.ask(["clock"], "read the clock"))

    def is_installed(self) -> bool:
        """Whether a control plane is on it; one that cannot be reached may be there."""
        try:
            return self.ask(["installed"], f"look for {self.sought}").strip() == "yes"
        except UnreachableError:
            return True

    def is_ready(self) -> bool:
        try:
            return self.ask(["ready"], "ask the API for its health").strip() == "ok"
        except UnreachableError:
            return False

    def node(self, name: str) -> ClusterNode | None:
        tried = f"look at node {name}"
        text = self.ask(["node", name], tried)
        try:
            return parse_node(json.loads(text)) if text.strip() else None
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(tried) from error

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None:
        """Close the node, note why, and evict its pods within that time."""
        tried = f"drain node {name}"
        arguments = ["drain", name, DRAINED, reason, str(timeout_seconds)]
        try:
            self.change(arguments, tried, timeout_seconds + _DRAIN_ROOM_SECONDS)
        except CommandFailedError as error:
            ways = f"let the pods that are named end, or raise {self.drain_timeout}"
            remedy = f"{ways} (0 leaves pods where they are); the node stays closed, and the next run goes on"
            raise CommandFailedError(self.target, tried, error.problem, remedy) from error

    def uncordon(self, name: str) -> None:
        """Open the node and take the note away."""
        self.change(["uncordon", name, DRAINED], f"open node {name}")

    def taint(self, name: str, taints: Sequence[str]) -> None:
        """Set taints; one that ends with `-` is taken away."""
        self.change(["taint", name, *taints], f"taint node {name}")

    def delete(self, name: str) -> None:
        """Delete the node, and what its name is bound to."""
        self.change(["delete", name], f"delete node {name}", DELETE_SECONDS)

    def ask(self, arguments: Sequence[str], tried: str) -> str:
        """What the script says; it only reads."""
        return self._run(arguments, tried, repeatable=True).text

    def change(
        self,
        arguments: Sequence[str],
        tried: str,
        seconds: float | None = None,
        accept: Sequence[int] = (0,),
    ) -> Completed:
        """Let the script change something."""
        return self._run(arguments, tried, timeout_seconds=seconds, accept=accept)

    def unreadable(self, tried: str) -> InvalidAnswerError:
        """The error for an answer that is none."""
        problem = "kubectl answered something else than an object"
        return InvalidAnswerError(self.target, tried, problem, "run it by hand there")

    def _run(self, arguments: Sequence[str], tried: str, **how: Any) -> Completed:
        how |= {"tried": tried, "after": self.after, "account": self._account}
        return run_script(self._host, self.script, arguments, **how)


C = TypeVar("C", bound=KubectlHost)


def answering(servers: Sequence[C], clock: Clock, reporter: Reporter) -> C:
    """The first server that answers; `Refused` if none does within a minute."""
    target = ", ".join(server.target for server in servers)
    ready: list[C] = []
    problem = "the API of no server answers there"
    remedy = "look at `systemctl status rke2-server` on them, then run again"
    silent = Finding("rke2.no-server", problem, remedy, level=Level.REPAIR)

    def look() -> Sequence[Finding]:
        ready.extend(one for one in servers if not ready and one.is_ready())
        return () if ready else (silent,)

    if left := poll(look, target, API_TIMEOUT_SECONDS, POLL_SECONDS, clock, reporter):
        raise Refused(target, left)
    return ready[0]
