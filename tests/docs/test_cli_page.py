"""Every command says what it does, and every command that stands in a page could be typed."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from docs import reference
from gpuclusters.cli.help import EXAMPLES, PROGRAM
from gpuclusters.cli.main import app
from tests.docs.pages import calls

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
