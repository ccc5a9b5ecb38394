"""Which engine runs the program: Pulumi's own, or the embedded one where Pulumi cannot be had."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpuclusters.cli.errors import UsageError

CHOICE = "GPU_CLUSTERS_ENGINE"
"""Environment variable that takes the choice away from us: `pulumi` or `embedded`."""


class Kind(StrEnum):
    """The engines there are."""

    PULUMI = "pulumi"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Engine:
    """A command that understands Pulumi's verbs and flags."""

    kind: Kind
    command: tuple[str, ...]
    reason: str
    """Why this one, for the first line printed."""

    @property
    def line(self) -> str:
        """The first line that a user sees."""
        if self.kind is Kind.PULUMI:
            return f"engine: Pulumi ({self.reason})"
        return (
            f"engine: embedded, with stand-ins for provider plugins ({self.reason}). "
            "For machines that matter install Pulumi: https://www.pulumi.com/docs/install"
        )

    def call(self, *args: str, folder: Path, env: Mapping[str, str]) -> int:
        """Run a verb with this terminal; gives its exit code. Ctrl-C goes to the engine alone."""
        with subprocess.Popen([*self.command, *args], cwd=folder, env=dict(env)) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    # The terminal has told the engine too, and it knows what to leave in what state.
                    continue

    def read(self, *args: str, folder: Path, env: Mapping[str, str]) -> Any:
        """Run a verb that prints JSON; gives it, or None if the verb failed."""
        done = subprocess.run(
            [*self.command, *args],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return None
        return json.loads(done.stdout)


def choose(env: Mapping[str, str] = os.environ) -> Engine:
    """The engine for this machine.

    Raises:
        UsageError: the environment asks for an engine that does not exist or is not installed.
    """
    wanted = env.get(CHOICE, "")
    if wanted not in ("", *Kind):
        raise UsageError(
            f"{CHOICE} is neither 'pulumi' nor 'embedded' (got {wanted!r}); "
            "unset it to have the engine chosen"
        )
    installed = shutil.which("pulumi", path=env.get("PATH"))
    if wanted == Kind.PULUMI and not installed:
        raise UsageError(
            f"{CHOICE} asks for Pulumi, but there is no 'pulumi' on PATH; "
            "install it (https://www.pulumi.com/docs/install) or unset the variable"
        )
    if wanted == Kind.EMBEDDED:
        return _embedded(f"{CHOICE} asks for it")
    if installed:
        return Engine(Kind.PULUMI, (installed,), f"found at {installed}")
    return _embedded("there is no 'pulumi' on PATH")


def _embedded(reason: str) -> Engine:
    return Engine(Kind.EMBEDDED, (sys.executable, "-m", "lab.engine"), reason)


def describe(engine: Engine) -> Sequence[str]:
    """What the engine stands on, for `doctor`."""
    return [engine.line, f"command: {' '.join(engine.command)}"]
