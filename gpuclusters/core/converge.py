"""One loop for every capability: observe, find, do a step, look again, until nothing is left to repair."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from gpuclusters.core.finding import Finding, Level, Refused

L = TypeVar("L")
ROUNDS = 12


class Reporter:
    """Hears what is done while a step runs; the engine shows it, though not beside the resource."""

    def note(self, line: str) -> None:
        """A line for the user, in one write, so that lines of several threads stay whole."""
        sys.stderr.write(f"gpu-clusters: {line}\n")
        sys.stderr.flush()


class Clock:
    """Time, to wait by."""

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def time_of_day() -> str:
    """Now, RFC 3339 in UTC, in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Step(Generic[L]):
    """What repairs the findings that name it."""

    run: Callable[[L, Sequence[Finding]], object]
    """Told what was observed, and the findings that it repairs."""
    look: bool = True
    """Whether what it brings decides what the following steps find, so that they wait for another look."""
    repeatable: bool = False
    """Whether it may run again when its findings are still there."""


class Capability(Generic[L]):
    """One thing on one target that is brought to the inputs of its resource and kept there."""

    @property
    def target(self) -> str:
        """The host or object as errors name it."""
        raise NotImplementedError

    @property
    def steps(self) -> Mapping[str, Step[L]]:
        """By name, in the order in which they are done."""
        raise NotImplementedError

    def observe(self) -> L:
        """What is there now; changes nothing."""
        raise NotImplementedError

    def findings(self, live: L) -> Iterable[Finding]:
        """How what is there differs from the inputs, and what forbids to change it."""
        raise NotImplementedError

    def seen(self) -> L:
        """What a refresh looks at, where it is more or less than `up` needs."""
        return self.observe()

    def differences(self, live: L) -> Iterable[Finding]:
        """What of the findings forbids to take over what is there."""
        return self.findings(live)

    def prove(self, live: L) -> L | None:  # noqa: ARG002
        """Refuse if it does not serve what it was made for; may answer what it saw then."""
        return None

    def outputs(self, live: L) -> Mapping[str, Any]:
        """What the resource tells beside `drift`."""
        raise NotImplementedError

    def is_absent(self, live: L) -> bool:
        """Whether nothing of it is there any more."""
        raise NotImplementedError

    def live_inputs(self, live: L) -> Mapping[str, Any]:  # noqa: ARG002
        """Inputs that would describe what is there, as far as it can be said in inputs."""
        return {}

    def remove(self) -> None:
        """Take away what was made; absent is fine."""


def converge(capability: Capability[L], reporter: Reporter, *, made_before: bool = False) -> L:
    """Bring a target to its inputs; answers what was observed last.

    A step runs once, unless it says that it may run again; `Refused` has all blocking findings at once, or
    what a step did not repair. An interrupted run is carried on by the next one, since nothing but the target
    tells how far it came. `made_before`: this resource has brought the target to these inputs before, so that
    all that differs is drift, which the reporter hears of.
    """
    done: set[str] = set()
    found: Sequence[Finding] = ()
    for _ in range(ROUNDS):
        live = capability.observe()
        found = list(capability.findings(live))
        raise_if_not_converged(capability, [f for f in found if f.level is Level.BLOCK])
        repairs = [f for f in found if f.level is Level.REPAIR]
        stuck = {n for n in done if not capability.steps[n].repeatable}
        raise_if_not_converged(capability, [f for f in repairs if f.step in stuck])
        if not repairs:
            for finding in found:
                reporter.note(f"{capability.target}: {finding}")
            return live
        if made_before and not done:
            for finding in repairs:
                reporter.note(f"{capability.target}: {finding.problem}; put back")
        for name, step in capability.steps.items():
            mine = [f for f in repairs if f.step == name]
            if mine:
                step.run(live, mine)
                done.add(name)
                if step.look:
                    break
    raise Refused(capability.target, [f for f in found if f.level is not Level.WARN])


def raise_if_not_converged(capability: Capability[Any], found: Sequence[Finding]) -> None:
    """Refuse with these findings, if there are any."""
    if found:
        raise Refused(capability.target, found)


def poll(
    look: Callable[[], Sequence[Finding]],
    target: str,
    timeout_seconds: float,
    poll_seconds: float,
    clock: Clock,
    reporter: Reporter,
    *,
    looks: int = 1,
    first_seconds: float | None = None,
) -> Sequence[Finding]:
    """Look again and again until nothing is found; answers what is still there when the time is over.

    There is always one look; a BLOCK, which waiting cannot mend, ends it at once. The reporter is told what
    is waited for, and for how long already: at each change, and after one, two, four, … minutes. `looks` in
    a row must find nothing; pauses double from `first_seconds` up to `poll_seconds`.
    """
    started, clean, pause = clock.now(), 0, first_seconds or poll_seconds
    told: tuple[str, ...] = ()
    again = 60.0
    while True:
        found = list(look())
        clean = 0 if found else clean + 1
        if clean >= looks:
            return ()
        lines = tuple(finding.problem for finding in found)
        passed = clock.now() - started
        over = passed + pause > timeout_seconds
        if lines and (lines != told or (passed >= again and not over)):
            more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
            so_far = f"{_duration(passed)} of {_duration(timeout_seconds)}"
            reporter.note(f"{target}: waiting for: {'; '.join(lines[:3])}{more} ({so_far})")
            while again <= passed:
                again *= 2
        told = lines
        if found and (over or any(f.level is Level.BLOCK for f in found)):
            return found
        clock.sleep(pause if found else poll_seconds)
        pause = min(2 * pause, poll_seconds)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def overdue(found: Iterable[Finding], late: str, remedy: str = "") -> list[Finding]:
    """What was left when the time was over: `late` before each that waiting might have mended."""
    return [
        one
        if one.level is Level.BLOCK
        else replace(one, problem=f"{late}: {one.problem}", remedy=remedy or one.remedy)
        for one in found
    ]
