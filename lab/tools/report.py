"""How the lab tells what it is doing: one line of text at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable

Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Write a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`8s`, `2m10s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
