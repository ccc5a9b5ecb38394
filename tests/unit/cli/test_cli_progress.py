"""Long commands say what they do: alive on a terminal, plain lines elsewhere, nothing where programs read."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gpuclusters.cli.report import steps


def told(*, terminal: bool, keep: bool = False, silent: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    with steps(console, keep=keep, silent=silent) as say:
        say("starting [2] hosts")
        say("starting the API server")
    return out.getvalue()


def test_off_a_terminal_each_step_is_a_plain_line_and_a_program_reads_none() -> None:
    lines = "starting [2] hosts\nstarting the API server\n"
    assert told(terminal=False) == told(terminal=False, keep=True) == lines
    assert told(terminal=False, silent=True) == ""


@pytest.mark.parametrize("silent", [True, False])
def test_on_a_terminal_the_step_is_shown_with_its_time(*, silent: bool) -> None:
    shown = told(terminal=True, silent=silent)
    assert "starting the API server" in shown
    assert re.search(r"\b0:0\d:\d\d\b", shown)
    kept = [line.strip() for line in told(terminal=True, keep=True).splitlines()]
    assert any(line.endswith("starting [2] hosts") for line in kept)


def test_a_failure_leaves_the_terminal_as_it_was() -> None:
    out = io.StringIO()

    def fail() -> None:
        with steps(Console(file=out, force_terminal=True, width=80)) as say:
            say("dividing")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")
