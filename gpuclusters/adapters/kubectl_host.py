"""A cluster through kubectl on one of its hosts, over SSH: its API need not be reachable from here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gpuclusters.adapters.errors import CommandFailedError, UnreachableError
from gpuclusters.adapters.ssh import Completed, SshHost

_DRAIN_ROOM_SECONDS = 60.0


class KubectlHost(ABC):
    """What the clusters of all distributions are asked alike; each has a script with these verbs."""

    sought: ClassVar[str]
    """What `is_installed` looks for, in messages."""
    drain_timeout: ClassVar[str]
    """How a user calls the timeout for draining."""
    drained: ClassVar[str]
    """Annotation that notes why a node was closed."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    @property
    def place(self) -> str:
        """Name, address and port."""
        return self._host.place

    def clock(self) -> int:
        """Seconds since 1970."""
        return int(self._ask(["clock"], "read the clock"))

    def is_installed(self) -> bool:
        """Whether a control plane is on it; one that cannot be reached may be there."""
        try:
            return self._ask(["installed"], f"look for {self.sought}").strip() == "yes"
        except UnreachableError:
            return True

    def is_ready(self) -> bool:
        """Whether its API answers."""
        try:
            return self._ask(["ready"], "ask the API for its health").strip() == "ok"
        except UnreachableError:
            return False

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None:
        """Close the node, note why, evict its pods."""
        tried = f"drain node {name}"
        arguments = ["drain", name, self.drained, reason, str(timeout_seconds)]
        try:
            self._change(arguments, tried, timeout_seconds + _DRAIN_ROOM_SECONDS)
        except CommandFailedError as error:
            raise CommandFailedError(
                self.place,
                tried,
                error.problem,
                f"let the pods that are named end, or raise {self.drain_timeout} (0 leaves pods where they "
                "are); the node stays closed, and the next run goes on",
            ) from error

    def uncordon(self, name: str) -> None:
        """Open the node."""
        self._change(["uncordon", name, self.drained], f"open node {name}")

    @abstractmethod
    def _ask(self, arguments: Sequence[str], tried: str) -> str:
        """What the script says; it only reads."""

    @abstractmethod
    def _change(
        self, arguments: Sequence[str], tried: str, timeout_seconds: float | None = None
    ) -> Completed:
        """Let the script change something."""
