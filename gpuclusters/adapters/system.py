"""The machine that we run on: its clock, and the provider process's standard error."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime


def time_of_day() -> str:
    """Now, RFC 3339 in UTC, in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class SystemClock:
    """`Clock` of this machine."""

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""
        time.sleep(seconds)


class StderrReporter:
    """`Reporter` on standard error: the engine shows it, though not beside the resource."""

    def note(self, line: str) -> None:
        """One line, in one write, so that lines of several threads stay whole."""
        sys.stderr.write(f"gpu-clusters: {line}\n")
        sys.stderr.flush()
