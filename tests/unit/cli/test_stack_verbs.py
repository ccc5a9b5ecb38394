"""`up`, `refresh`, `destroy` and `down` as an operator runs them; the engine writes down its words."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuclusters.cli.project import Project
from tests.fixtures.tables import beside
from tests.unit.cli.conftest import Cli

ENGINE = """#!/bin/sh
echo "$*" >>words
case "$1" in stack) exit 1 ;; esac
"""
CASES = beside(__file__, "stack_verbs.yaml")
Run = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def run(project: Project, cli: Cli, tmp_path: Path) -> Run:
    """Exit code, standard error, and what the engine was told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pulumi").write_text(ENGINE)
    (programs / "pulumi").chmod(0o755)
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
    }

    def run(*words: str, **more: str) -> tuple[int, str, list[str]]:
        done = cli(*words, at=project.folder, **env, **more)
        told = project.folder / "words"
        said = told.read_text().splitlines() if told.exists() else []
        return done.returncode, done.stderr, [line for line in said if not line.startswith("stack")]

    return run


@pytest.mark.parametrize(("words", "told"), CASES["engine"].items())
def test_the_engine_is_told_what_was_asked_for(run: Run, words: str, told: str) -> None:
    code, said, engine = run(*words.split(), "--stack", "rke2-a100")
    verb, _, options = told.partition(" ")
    assert (code, engine) == (0, [f"{verb} --stack rke2-a100 {options}"]), said


@pytest.mark.parametrize(("verb", "skip"), [("destroy", ""), ("refresh", "false")])
def test_a_change_that_nobody_agreed_to_is_refused_without_a_terminal(
    run: Run, verb: str, skip: str
) -> None:
    code, said, engine = run(verb, "--stack", "rke2-a100", PULUMI_SKIP_CONFIRMATIONS=skip)
    assert (code, engine) == (2, [])
    assert "add --yes [command.nobody-to-ask]" in said


@pytest.mark.parametrize(("words", "told"), CASES["refused"].items())
def test_an_example_is_not_applied_and_down_is_for_a_lab(run: Run, words: str, told: str) -> None:
    code, said, engine = run(*words.split(), "--stack", "rke2-a100")
    assert (code, engine) == (2, [])
    assert told in said


@pytest.mark.parametrize(("line", "expected"), CASES["completed"].items())
def test_the_shell_completes_stacks_and_codes(
    project: Project, cli: Cli, line: str, expected: str
) -> None:
    at = str(len(line.split()) - 1)
    shell = {"_GPU_CLUSTERS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": at}
    done = cli(at=project.folder, **shell)
    assert set(done.stdout.split()) == {expected}, done.stderr
