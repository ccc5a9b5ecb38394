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
from tests.engine.shellkit import Shell, shell, whole

__all__ = ["shell"]

EVERYWHERE = (
    "--color --cwd --disable-integrity-checking --emoji --fully-qualify-stack-names --logflow"
    " --logtostderr --memprofilerate --non-interactive --otel-traces --profiling --tracing --verbose"
)
_SHOWN = (
    "--config --config-file --config-path --debug --diff --json --message --parallel --show-config"
    " --show-replacement-steps --show-sames --stack --suppress-outputs --suppress-permalink"
    " --suppress-progress --target --target-dependents --exclude --exclude-dependents --event-log"
    " --run-program --exec-kind --exec-agent --client --remote --neo --copilot"
)
_PROGRAM = (
    "--attach-debugger --expect-no-changes --policy-pack --policy-pack-config --refresh --replace"
    " --show-policy-remediations --show-reads --show-secrets --target-replace"
)
# What `pulumi <command> --help` of the 3.27x line lists, hidden flags included.
PULUMI = {
    "preview": f"{_SHOWN} {_PROGRAM} --import-file --save-plan",
    "up": f"{_SHOWN} {_PROGRAM} --continue-on-error --plan --secrets-provider --show-full-output"
    " --skip-preview --strict --yes",
    "refresh": f"{_SHOWN} --expect-no-changes --preview-only --skip-preview --yes"
    " --clear-pending-creates --import-pending-creates --skip-pending-creates",
    "destroy": f"{_SHOWN} --continue-on-error --exclude-protected --preview-only --refresh --remove"
    " --show-full-output --skip-preview --yes",
    "cancel": "--stack --yes",
    "stack": "--show-ids --show-name --show-urns --stack",
    "stack init": "--copy-config-from --no-select --secrets-provider --stack --teams --remote-config",
    "stack ls": "--all --json --project --tag",
    "stack select": "--create --secrets-provider --stack",
    "stack rm": "--force --preserve-config --remove-backups --stack --yes",
    "stack export": "--file --show-secrets --stack --version",
    "stack import": "--file --force --stack",
    "stack output": "--json --shell --show-secrets --stack",
    "stack history": "--full-dates --json --page --page-size --show-secrets --stack",
    "config": "--config-file --json --show-secrets --stack",
    "config get": "--config-file --json --path --stack",
    "config set": "--config-file --path --plaintext --secret --stack --type --draft",
    "config rm": "--config-file --path --stack",
    "state delete": "--all --force --stack --target-dependents --yes",
    "state unprotect": "--all --stack --yes",
    "version": "",
}
# Commands that need Pulumi Cloud, code generators, or what this engine leaves to the CLI.
REFUSED = (
    "about", "login", "logout", "whoami",
    "ai", "api", "console", "convert", "deployment", "do", "env", "gen-completion", "import",
    "insights", "install", "logs", "neo", "new", "org", "package", "plugin", "policy", "project",
    "replay-events", "schema", "template", "watch",
    "config cp", "config refresh", "config rm-all", "config set-all",
    "config edit", "config env", "config env ls", "config pin", "config restore", "config web",
    "stack change-secrets-provider", "stack graph", "stack rename", "stack tag", "stack unselect",
    "stack drift", "stack migrate", "stack schedule", "stack webhook",
    "state protect", "state rename", "state repair", "state taint", "state untaint", "state upgrade",
    "state edit", "state eject", "state get", "state move", "state promote",
)  # fmt: skip


def _parser_of(command: str, parser: Parser) -> Parser:
    for name in command.split():
        parser = next(below for _, known, below in parsing._below(parser) if known == name)
    return parser


def _flags(parser: Parser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


@pytest.mark.parametrize("command", PULUMI)
def test_every_flag_of_a_command_is_known_or_refused(command: str) -> None:
    known = _flags(_parser_of(command, whole()))
    wanted = {*PULUMI[command].split(), *EVERYWHERE.split()}
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


@pytest.mark.parametrize("command", REFUSED)
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


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("upp",), 'unknown command "upp" for "python -m engine"; did you mean `up`?'),
        (("stack", "exprot"), "did you mean `export`?"),
        (("state", "unprotetc"), "did you mean `unprotect`?"),
        (("config", "ste", "a", "b"), "did you mean `set`?"),
        (("zzzz",), 'unknown command "zzzz" for "python -m engine"\n'),
        (("up", "--jsno"), "unknown flag: --jsno of `python -m engine up`; did you mean `--json`?"),
        (("stack", "ls", "--al"), "did you mean `--all`?"),
        (("up", "template"), "templates and addresses are not part of the embedded engine"),
        (("config", "get", "x", "--zzz"), "see `python -m engine config get --help`"),
    ],
)  # fmt: skip
def test_what_nobody_knows_is_one_line_with_what_was_probably_meant(
    shell: Shell, arguments: tuple[str, ...], answer: str
) -> None:
    done = shell(*arguments)
    assert done.code == 2
    assert answer in done.err
    assert done.err.count("\n") == 1
    assert not done.out


def test_help_and_version_have_two_spellings(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.ok("--version").out == shell.ok("version").out
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


@pytest.mark.parametrize("command", [("stack", "--help"), ("stack", "export"), ("stack", "ls")])
def test_a_reader_that_goes_away_costs_no_traceback(shell: Shell, command: tuple[str, ...]) -> None:
    shell.ok("stack", "init", "dev")
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *command],
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
