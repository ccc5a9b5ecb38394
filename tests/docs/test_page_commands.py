"""Every command says what it does, and every command that stands in a page could be typed.

Console blocks with `<!-- run -->` above them are run, and what they print is compared. A line `$ …` is the
command; what follows is what it prints, `…` for what differs from time to time. Only commands of this
program, without a lab, in this process.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from docs import reference
from engine.cli.main import build
from engine.cli.parser import parse
from engine.usererror import UserError
from gpuclusters.cli.help import EXAMPLES, PROGRAM
from gpuclusters.cli.main import app, main
from lab import tools
from tests.docs.pages import ROOT, Block, blocks, calls, pages, typed

ROOT_COMMAND: Any = typer.main.get_command(app)
REPORTING = (
    *("preview", "doctor", "verify", "drift", "review", "explain", "lab status"),
    "training-times",
)
"""Commands that tell something; each has a form for programs."""


def test_every_command_says_what_it_does_and_shows_how() -> None:
    for path, command in reference.commands():
        assert command.help, path
        has_example = path in EXAMPLES or "Example" in command.help
        assert has_example, f"{path}: add an example to gpuclusters/cli/examples.yaml"
        for option in command.params:
            assert option.help or option.name == "help", f"{path}: {option.name} says nothing"


def test_commands_that_report_have_a_form_for_programs() -> None:
    found = dict(reference.commands())
    for path in REPORTING:
        options = [one for param in found[path].params for one in param.opts]
        assert "--json" in options, path


def could_be_typed(arguments: list[str]) -> None:
    """Parse, without running anything."""
    command, path = ROOT_COMMAND, PROGRAM
    context = typer.Context(command, info_name=path)
    while hasattr(command, "list_commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {name}"
        context = typer.Context(command, parent=context, info_name=name)
    if "--help" not in arguments and not hasattr(command, "list_commands"):
        command.make_context(context.info_name, arguments)


@pytest.mark.parametrize("words", calls(PROGRAM))
def test_a_command_in_a_page_could_be_typed(words: list[str]) -> None:
    could_be_typed(words)


def test_examples_of_the_help_could_be_typed() -> None:
    known = {path for path, _ in reference.commands()}
    for path, examples in EXAMPLES.items():
        for line in examples if path in known or not path else ():
            typed = re.split(r"\s[#|>]\s|;\s|\s&&\s", line.split(f"{PROGRAM} ", 1)[1])[0]
            could_be_typed(shlex.split(typed))


@pytest.mark.parametrize("line", ["upp", "up --stak dev", "lab exek hgx-01 true"])
def test_a_command_that_could_not_be_typed_is_noticed(line: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 (typer has its own copy of click)
        could_be_typed(line.split())


MARKED = [block for page in pages() for block in blocks(page) if block.marked]


@pytest.mark.parametrize("block", [pytest.param(one, id=one.id) for one in MARKED])
def test_a_page_shows_what_the_command_prints(
    block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert block.language == "console"
    monkeypatch.chdir(ROOT)
    for variable in ("PULUMI_STACK", "GPU_CLUSTERS_LAB"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    ran = typed(block)
    assert ran
    assert len(MARKED) >= 3
    for line, expected in ran:
        program, *arguments = shlex.split(line)
        assert program == "gpu-clusters"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        printed = "\n".join(one.rstrip() for one in (out + err).strip().splitlines())
        assert re.fullmatch(expected, printed, re.DOTALL), printed


@pytest.mark.parametrize("words", calls("pulumi"))
def test_a_command_of_pulumi_in_a_page_could_be_typed(words: list[str]) -> None:
    try:
        parse(build(), words)
    except UserError as error:
        # What only the real CLI does is refused by the embedded engine by name.
        if "is not part of the embedded engine" not in str(error):
            raise


@pytest.mark.parametrize("words", calls("make"))
def test_a_target_of_make_in_a_page_is_there(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words) <= set(targets)


@pytest.mark.parametrize("words", calls("kubectl"))
def test_a_command_of_kubectl_in_a_page_could_be_typed(words: list[str]) -> None:
    """kubectl reads its words before it asks the server, which is not there."""
    words = [str(tools.resolve("kubectl")), "--server", "http://127.0.0.1:1", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "127.0.0.1:1" in done.stderr, done.stderr
