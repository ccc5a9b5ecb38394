"""Base of what keeps one thing on one host: the capabilities in the rooms' `host.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from gpuclusters.core.converge import Clock, Kept, Reporter, StderrReporter, Step, SystemClock, poll
from gpuclusters.core.finding import Finding
from gpuclusters.host.model import HostConnection
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost

I = TypeVar("I")  # noqa: E741
L = TypeVar("L")
POLL_SECONDS = 2.0
Reach = Callable[[HostConnection], SshHost]


class HostCapability(Kept[L], Generic[I, L]):
    """A room says what it observes and finds, its steps, and what its resource tells."""

    room: ClassVar[str] = ""
    """Whose scripts it runs."""
    area: ClassVar[str] = ""
    """Whose `known_errors` say what a failure of a script means."""

    def __init__(
        self,
        inputs: I,
        host: SshHost,
        before: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """`before` is all that the resource said the last time; nothing when it is made."""
        self._inputs, self._host, self._before = inputs, host, before or {}
        self._clock, self._reporter = clock or SystemClock(), reporter or StderrReporter()
        self._files = SshNodeFiles(host)
        self.target = host.target

    @classmethod
    def on(cls, inputs: I, reach: Reach, before: Mapping[str, Any]) -> Self:
        """Over SSH; `reach` is the way to the host, and to others that are asked."""
        return cls(inputs, reach(inputs.connection), before)  # type: ignore[attr-defined]

    @property
    def steps(self) -> Mapping[str, Step[L]]:
        """By name, in the order in which they are done."""
        raise NotImplementedError

    def _poll(
        self,
        look: Callable[[], Sequence[Finding]],
        seconds: float,
        first_seconds: float,
        target: str = "",
    ) -> Sequence[Finding]:
        """Wait until nothing is found; what is left when the time is over."""
        return poll(
            look,
            target=target or self.target,
            timeout_seconds=seconds,
            poll_seconds=POLL_SECONDS,
            first_seconds=first_seconds,
            clock=self._clock,
            reporter=self._reporter,
        )

    def _run(
        self, tried: str, name: str, *arguments: str, seconds: float | None = None, **how: Any
    ) -> str:
        """What a script of the room, or another by `ROOM/SCRIPT`, prints."""
        script = name if "/" in name else f"{self.room}/{name}"
        how = {"tried": tried, "timeout_seconds": seconds, "area": self.area, **how}
        return run_script(self._host, script, arguments, **how).text
