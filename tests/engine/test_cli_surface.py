"""Every verb and flag of Pulumi's CLI either does something here or is refused by name."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.cli import parser as parsing
from engine.cli import refusals
from engine.cli.parser import Parser
from tests.engine.shellkit import COMMANDS, Run, Shell, engine, shell, whole

__all__ = ["engine", "shell"]


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


@pytest.mark.parametrize(
    "words", [name.split() for name in sorted(refusals.reasons()) if name.split()[-1][0] == "-"]
)
def test_a_refused_flag_says_why_and_runs_nothing(shell: Shell, words: list[str]) -> None:
    *command, flag = words
    done = shell(*(command or ["preview"]), flag)
    assert done.code == 2
    assert re.fullmatch(
        rf"error: {flag} is not part of the embedded engine: .{{15,}}\n", done.err
    ), done.err
    assert not shell.files("**/*")


@pytest.mark.parametrize("command", COMMANDS["refused"].split(", "))
def test_a_refused_command_says_why_and_runs_nothing(shell: Shell, command: str) -> None:
    done = shell(*command.split(), "--whatever", "argument")
    name = " ".join(command.split()[:2])
    assert done.code == 2
    assert done.err.startswith(f"error: `{name}` is not part of the embedded engine: "), done.err
    assert len(done.err) > len(f"error: `{name}` is not part of the embedded engine: ") + 15
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
    shell: Shell, engine: Callable[[Run], None], line: str
) -> None:
    engine(lambda *_: pytest.fail("the engine ran"))
    shell.ok("stack", "init", "dev")
    done = shell(*line.split())
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


@pytest.mark.parametrize("flag", ["yes", "target-dependents"])
def test_a_flag_from_the_environment_is_refused_by_name(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    name = f"PULUMI_OPTION_{flag.upper().replace('-', '_')}"
    monkeypatch.setenv(name, "true")
    done = shell("up")
    assert done.code == 2
    assert f"{name} is set" in done.err
    assert f"pass --{flag}" in done.err
    assert not shell.files("**/*")


def test_a_reader_that_goes_away_costs_no_traceback(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "stack", "ls"],
        cwd=shell.folder,
        env={**os.environ, "PYTHONPATH": str(Path(parsing.__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(120)
    assert not errors
