"""Waiting for something that comes by itself: for a time that is bounded, and never without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuclusters.core.converge import Clock, Reporter


@dataclass(slots=True)
class Telling:
    """Says what is waited for, once per change."""

    reporter: Reporter
    place: str
    said: tuple[str, ...] = field(default=())

    def of(self, lines: tuple[str, ...]) -> None:
        """These are waited for now."""
        if lines != self.said and lines:
            more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
            self.reporter.note(f"{self.place}: waits for {'; '.join(lines[:3])}{more}")
        self.said = lines


def until(
    look: Callable[[], Sequence[str]],
    *,
    place: str,
    timeout_seconds: float,
    poll_seconds: float,
    clock: Clock,
    reporter: Reporter,
    looks: int = 1,
) -> tuple[str, ...]:
    """Look again and again until nothing is missing; answers what still is when the time is over.

    Args:
        look: what is missing now, a line each.
        place: as notes name it.
        timeout_seconds: how long; there is always one look.
        poll_seconds: between two looks.
        clock: to wait by.
        reporter: told what is waited for, once per change.
        looks: looks in a row that must find nothing missing.
    """
    telling, started, found = Telling(reporter, place), clock.now(), 0
    while True:
        missing = tuple(look())
        found = 0 if missing else found + 1
        if found >= looks:
            return ()
        telling.of(missing)
        if missing and clock.now() - started + poll_seconds > timeout_seconds:
            return missing
        clock.sleep(poll_seconds)
