"""Every verb and flag of Pulumi's CLI either does something here or is refused by name."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cli import parser as parsing
from engine.cli import refusals
from engine.cli.parser import Parser
from tests.engine.shellkit import COMMANDS, Recorder, Shell, dev, engine, shell, whole

__all__ = ["dev", "engine", "shell"]


def _parser_of(command: str, parser: Parser) -> Parser:
    for name in command.split():
        parser = next(below for _, known, below in parsing._below(parser) if known == name)
    return parser


def _flags(parser: Parser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


@pytest.mark.parametrize("command", COMMANDS["pulumi"])
def test_every_flag_of_a_command_is_known_or_refused(command: str) -> None:
    known = _flags(_parser_of(command, whole()))
    wanted = {*COMMANDS["pulumi"][command].split(), *COMMANDS["everywhere"].split()}
    nameless = {flag for flag in wanted - known if refusals.refusal(flag, command) is None}
    assert not nameless
    both = {flag for flag in known if refusals.refusal(flag, command) is not None}
    assert not both


def test_a_value_may_have_the_name_of_a_command() -> None:
    known = parsing.parse(
        whole(), ["--cwd", "stack", "config", "set", "--stack", "up", "ls", "config"]
    )
    assert (known.cwd, known.verb, known.action) == ("stack", "config", "set")
    assert (known.stack, known.key, known.value) == ("up", "ls", "config")


REFUSED = [
    *((name, name) for name in sorted(refusals.reasons()) if name.split()[-1][0] == "-"),
    *((name, f"{name} --whatever argument") for name in COMMANDS["refused"].split(", ")),
]


@pytest.mark.parametrize(("name", "line"), REFUSED)
def test_a_refused_flag_or_command_says_why_and_runs_nothing(
    shell: Shell, name: str, line: str
) -> None:
    done = shell(*([] if line[0] != "-" else ["preview"]), *line.split())
    words = name.split()
    shown = words[-1] if words[-1][0] == "-" else f"`{' '.join(words[:2])}`"
    assert done.code == 2
    assert re.fullmatch(
        rf"error: {shown} is not part of the embedded engine: .{{15,}}\n", done.err, re.DOTALL
    ), done.err
    assert not shell.files("**/*")


def _dests(parser: Parser) -> Iterator[str]:
    for one in parsing._all(parser):
        for action in one._actions:
            if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
                yield action.dest


def test_every_flag_that_is_taken_is_read_somewhere() -> None:
    read: set[str] = set()
    for file in Path(parsing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
                read.update(map(str, texts if node.func.id == "getattr" else ()))
    assert set(_dests(whole())) <= read


@pytest.mark.parametrize("line", COMMANDS["wrong"])
def test_a_wrong_command_line_is_told_in_one_line_and_runs_nothing(
    dev: Shell, engine: Recorder, line: str
) -> None:
    done = dev(*line.split())
    assert engine.requests == []
    assert done.code == 2, done
    assert COMMANDS["wrong"][line] in done.err
    assert re.fullmatch("error: .*\\n", done.err)
    assert not done.out


def test_help_and_version_have_two_spellings(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.ok("--version").out == shell.ok("version").out
    for command in ([], ["state"], ["stack"]):
        assert shell.ok(*command).out.startswith("usage: ")
    texts = []
    for command in (["help", "stack", "ls"], ["stack", "ls", "--help"]):
        with pytest.raises(SystemExit) as ended:
            parsing.parse(whole(), command)
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("usage: python -m engine stack ls")


def test_a_reader_that_goes_away_costs_no_traceback(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "engine", "stack", "ls"]
    done = subprocess.run(
        command, cwd=shell.folder, stdout=write, stderr=subprocess.PIPE, check=False, timeout=120
    )
    os.close(write)
    assert not done.stderr
