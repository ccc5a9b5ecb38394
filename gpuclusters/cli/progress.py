"""What a long command does now, and for how long: alive on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Say = Callable[[str], None]
"""Tells what begins now, in one line."""


@contextmanager
def steps(console: Console, *, keep: bool = False, silent: bool = False) -> Iterator[Say]:
    """Show the step that runs with the time since it began.

    Args:
        console: where to; standard error unless the steps are the command's output.
        keep: each step is also a line of its own that stays, as it is off a terminal.
        silent: say nothing off a terminal: somebody else reads what is printed.
    """
    if not console.is_terminal:
        yield nothing if silent else (lambda line: _line(console, line))
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=None)

        def say(line: str) -> None:
            if keep:
                _line(shown.console, line)
            shown.reset(task, description=line)

        yield say


def nothing(line: str) -> None:
    """For those who asked for nothing else than the result."""
    del line


def _line(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False)
