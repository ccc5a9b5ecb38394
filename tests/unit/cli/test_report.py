"""What is printed after an `up` in the lab, and while a command takes its time."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from gpuclusters.cli.project import Project
from gpuclusters.cli.reach import Access, ApiAddress
from gpuclusters.cli.report import of_caas, show, steps


@pytest.mark.attack(
    by="whoever reads a terminal or the log of a pipeline",
    tries="take a tenant's token from what `make up` printed",
    stopped_by="the path of its file is printed, which its owner alone may read",
)
def test_where_a_token_is_gets_printed_and_not_the_token(tmp_path: Path) -> None:
    lab = tmp_path / ".lab"
    (lab / "tokens").mkdir(parents=True)
    (lab / "tokens" / "acme").write_text("a-token-of-acme")
    access = Access(
        ApiAddress("https://localhost:8080", lab / "ca.crt", "127.66.0.1"),
        {"acme": lab / "tokens" / "acme"},
    )
    said = io.StringIO()

    summary = of_caas(Project(tmp_path, lab), "dev", {}, access)
    show(Console(file=said, width=200), summary, unchanged=True)

    assert ".lab/tokens/acme, good for a day" in said.getvalue()
    assert (
        "--cacert .lab/ca.crt --connect-to ::127.66.0.1: https://localhost:8080/v1"
        in said.getvalue()
    )
    assert "a-token-of-acme" not in said.getvalue()


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
