"""Recipes for pipelines as their forges read them, and a runner for their shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs/recipes"


class _Loader(yaml.SafeLoader):
    """YAML 1.2 of pipelines: `on` is a word."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((RECIPES / name).read_text(), _Loader)
    return found


def scripts(job: dict[str, Any]) -> dict[str, str]:
    """The shell of a job's steps, by name."""
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def assert_harmless(name: str) -> None:
    """Actions of a workflow are pinned, no step runs what somebody may have written, none keeps the token."""
    used = re.findall(r"uses: (\S+)(.*)", (RECIPES / name).read_text())
    assert used
    for action, rest in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", rest), rest
    for job in recipe(name)["jobs"].values():
        for step in job["steps"]:
            # An expression in a script is code that whoever names a branch can write.
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def runner(folder: Path, ours: str, **doubles: str) -> tuple[Path, dict[str, str]]:
    """A folder as a runner has it: our command by a Python program, and doubles of others by shell."""
    bin_, work = folder / "bin", folder / "work"
    (work / ".venv/bin").mkdir(parents=True)
    (folder / "given").mkdir()
    bin_.mkdir()
    path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    programs = {work / ".venv/bin/gpu-clusters": f"#!{sys.executable}\n{path}{ours}"}
    programs |= {bin_ / name: f"#!/bin/sh\n{text}" for name, text in doubles.items()}
    for file, text in programs.items():
        file.write_text(text)
        file.chmod(0o755)
    env = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(folder), "STACK": "prod"}
    return work, env


def shell(script: str, work: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script as forges run one."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=work, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
