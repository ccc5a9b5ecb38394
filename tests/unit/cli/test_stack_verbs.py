"""`up`, `refresh`, `destroy` and `down` as an operator runs them; the engine writes down its words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENGINE = """#!/bin/sh
echo "$*" >>words
case "$1" in stack) exit 1 ;; esac
"""
URN = "urn:pulumi:rke2-a100::gpu-clusters::gpu-clusters:gpu:GpuDriver::gpu-01-driver"

Run = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Exit code, standard error, and what the engine was told."""
    (tmp_path / "gpuclusters").mkdir()
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.rke2-a100.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pulumi").write_text(ENGINE)
    (programs / "pulumi").chmod(0o755)

    def run(*words: str) -> tuple[int, str, list[str]]:
        done = subprocess.run(
            [sys.executable, "-m", "gpuclusters.cli", *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PULUMI_BACKEND_URL": f"file://{tmp_path}",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        told = tmp_path / "words"
        said = told.read_text().splitlines() if told.exists() else []
        return done.returncode, done.stderr, [line for line in said if not line.startswith("stack")]

    return run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["destroy", "--yes"], "destroy --stack rke2-a100 --yes"),
        (["destroy", "--yes", "--refresh"], "destroy --stack rke2-a100 --yes --refresh"),
        (
            ["destroy", "-y", "-t", URN, "--target-dependents"],
            f"destroy --stack rke2-a100 --yes --target-dependents --target {URN}",
        ),
        (["destroy", "-y", "--parallel", "1"], "destroy --stack rke2-a100 --yes --parallel 1"),
        (["refresh", "-y"], "refresh --stack rke2-a100 --yes"),
        (
            ["refresh", "-y", "--target", URN, "--target", "**::other"],
            f"refresh --stack rke2-a100 --yes --target {URN} --target **::other",
        ),
        (
            ["preview", "--diff", "--target", URN],
            f"preview --stack rke2-a100 --diff --target {URN}",
        ),
    ],
)
def test_the_engine_is_told_what_was_asked_for(run: Run, words: list[str], told: str) -> None:
    code, said, engine = run(*words, "--stack", "rke2-a100")
    assert (code, engine) == (0, [told]), said


@pytest.mark.parametrize("verb", ["destroy", "refresh"])
def test_a_change_that_nobody_agreed_to_is_refused_without_a_terminal(run: Run, verb: str) -> None:
    code, said, engine = run(verb, "--stack", "rke2-a100")
    assert (code, engine) == (2, [])
    assert "add --yes [command.nobody-to-ask]" in said


def test_an_example_with_placeholders_is_previewed_and_not_applied(run: Run) -> None:
    code, said, engine = run("up", "--yes", "--stack", "rke2-a100")
    assert (code, engine) == (2, [])
    assert "placeholder" in said


def test_down_is_for_a_lab(run: Run) -> None:
    code, said, engine = run("down", "--stack", "rke2-a100")
    assert (code, engine) == (2, [])
    assert "`gpu-clusters destroy --stack rke2-a100` destroys its resources" in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpu-clusters up --stack r", {"rke2-a100"}),
        ("gpu-clusters review --stack r", {"rke2-a100"}),
        ("gpu-clusters explain command.not-in", {"command.not-in-lab"}),
    ],
)
def test_the_shell_completes_stacks_and_codes(
    tmp_path: Path, run: Run, line: str, expected: set[str]
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from gpuclusters.cli.main import app; app(prog_name='gpu-clusters')",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_GPU_CLUSTERS_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == expected, done.stderr
