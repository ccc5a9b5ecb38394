"""The project that the command works on: the folder with Pulumi.yaml, and one stack of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from gpuclusters.cli import engine as engines
from gpuclusters.cli.errors import RunError, UsageError, tell
from gpuclusters.config.cluster import placeholders, uses_lab
from gpuclusters.config.fault import lines, told
from gpuclusters.config.inventory import LAB_FOLDER, LAB_FOLDER_VARIABLE
from gpuclusters.config.stack import StackConfig, check_stack_file
from gpuclusters.core.finding import Finding


def read_valid(project: Project, stack: str, *, runs_program: bool = False) -> StackConfig:
    """The stack's configuration. Warnings go to stderr, unless the program runs next and logs them itself."""
    file = project.stack_file(stack)
    checked = check_stack_file(file)
    if isinstance(checked, list):
        raise _refused(file, checked)
    for warning in () if runs_program else checked.warnings:
        tell("warning", "yellow", told(file, warning))
    return checked


def refuse_placeholders(project: Project, stack: str, config: StackConfig) -> None:
    if found := placeholders(config.section):
        above = config.cluster_type.value
        named = [replace(one, path=(above, *one.path)) for one in found]
        raise _refused(project.stack_file(stack), named)


def _refused(file: Path, found: list[Finding]) -> UsageError:
    count = "one fault" if len(found) == 1 else f"{len(found)} faults"
    faults = "\n".join(f"  {line}" for line in lines(file, found))
    return UsageError(
        f"the configuration has {count}; nothing was started\n{faults}",
        "command.configuration-faults",
    )


_LONGEST = 300
LAB_PASSPHRASE = "gpu-clusters-lab"  # noqa: S105  (public: it protects a lab on loopback)


@dataclass(frozen=True, slots=True)
class Project:
    folder: Path
    lab_folder: Path

    @property
    def name(self) -> str:
        document = yaml.safe_load((self.folder / "Pulumi.yaml").read_text(encoding="utf-8"))
        return str(document["name"])

    @classmethod
    def find(cls, start: Path | None = None, env: Mapping[str, str] = os.environ) -> Project:
        """The project around `start` (default: the working directory)."""
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / "Pulumi.yaml").is_file() and (folder / "gpuclusters").is_dir():
                lab = env.get(LAB_FOLDER_VARIABLE)
                return cls(folder, Path(lab).resolve() if lab else folder / LAB_FOLDER)
        raise UsageError(
            f"no gpu-clusters project at {start} or above; change into a checkout of it",
            "command.no-project",
        )

    def stack_file(self, stack: str) -> Path:
        path = self.folder / f"Pulumi.{stack}.yaml"
        if not path.is_file():
            known = sorted(p.name.split(".")[1] for p in self.folder.glob("Pulumi.*.yaml"))
            raise UsageError(
                f"there is no stack {stack!r} ({path.name} is missing); known: {', '.join(known)}",
                "command.no-stack",
            )
        return path

    def lab_environment(self, env: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What a stack in the lab needs beside `env`; whatever the user has set stays."""
        lab = self.lab_folder
        defaults = {
            "PULUMI_BACKEND_URL": f"file://{lab / 'state'}",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "GPU_CLUSTERS_SSH_KEY_FILE": str(lab / "ssh" / "id_ed25519"),
        }
        if "PULUMI_CONFIG_PASSPHRASE_FILE" not in env:
            defaults["PULUMI_CONFIG_PASSPHRASE"] = LAB_PASSPHRASE
        return {**defaults, **env, LAB_FOLDER_VARIABLE: str(lab)}


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack, whatever its configuration, and the engine that knows it."""

    project: Project
    stack: str
    engine: engines.Engine
    env: Mapping[str, str]

    def call(self, verb: str, *flags: str) -> int:
        """Run a verb of the engine on this stack, with this terminal; gives its exit code."""
        words = (verb, "--stack", self.stack, *flags)
        return self.engine.call(*words, folder=self.project.folder, env=self.env)

    def run(self, *args: str, **streams: Any) -> subprocess.CompletedProcess[str]:
        """Run any command of the engine to its end; what it prints is kept, unless told otherwise."""
        kept: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        return subprocess.run(
            [*self.engine.command, *args],
            cwd=self.project.folder,
            env={**self.env, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            **kept,
        )

    def told(self, *args: str, seconds: float | None = None) -> tuple[str, str]:
        """What the engine prints; or, if it fails, nothing and its last words."""
        try:
            done = self.run(*args, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "", f"no answer within {seconds} s"
        except OSError as error:
            return "", str(error)
        if not done.returncode:
            return done.stdout, ""
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = (words[-1] if words else f"exit status {done.returncode}")[:_LONGEST]
        return "", said.removeprefix("error: ")

    def ask(self, *args: str, seconds: float | None = None) -> tuple[Any, str]:
        """The JSON that the engine prints, and its last words if it failed (then None)."""
        printed, problem = self.told(*args, seconds=seconds)
        try:
            return (None, problem) if problem else (json.loads(printed), "")
        except ValueError:
            return None, f"`{args[0]}` printed no JSON"

    def read(self, *args: str) -> Any:
        """What the engine prints as JSON about this stack; None if it fails."""
        return self.ask(*args, "--json", "--stack", self.stack)[0]

    def make(self, folder: Path | None = None, *, stdout: int | None = None) -> None:
        """Make the stack in its backend, beside the `Pulumi.yaml` of the folder."""
        words = ("stack", "init", self.stack, "--non-interactive")
        where = folder or self.project.folder
        if self.engine.call(*words, folder=where, env=self.env, stdout=stdout):
            said = f"the stack {self.stack!r} cannot be made; see above"
            raise RunError(said, "command.no-init")

    def is_made(self) -> bool:
        known, _ = self.ask("stack", "ls", "--json")
        return any(entry["name"].split("/")[-1] == self.stack for entry in known or ())


@dataclass(frozen=True, slots=True)
class Session(Stack):
    """A stack with its valid configuration."""

    config: StackConfig

    @property
    def in_lab(self) -> bool:
        """Whether the stack lives on simulated machines of this one."""
        return uses_lab(self.config.section)


def open_session(project: Project, stack: str, *, runs_program: bool = False) -> Session:
    """Validate the stack's configuration and choose the engine; starts nothing."""
    config = read_valid(project, stack, runs_program=runs_program)
    env = project.lab_environment() if uses_lab(config.section) else dict(os.environ)
    return Session(project, stack, engines.choose(), env, config)
