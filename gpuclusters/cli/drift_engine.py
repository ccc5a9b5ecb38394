"""`drift`: asks the engine for a refresh that writes nothing, and for what a following `up` would do."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from gpuclusters.cli.project import Session
from gpuclusters.drift import engine
from gpuclusters.drift.engine import View
from gpuclusters.drift.finding import Finding, Unseen
from gpuclusters.drift.report import Looked


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    findings: tuple[Finding, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    looked: tuple[Looked, ...] = ()

    def joined(self, other: Found) -> Found:
        """Both."""
        return Found(
            self.findings + other.findings,
            self.unseen + other.unseen,
            self.looked + other.looked,
        )


_STREAM = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "1", "PULUMI_SKIP_UPDATE_CHECK": "1"}
_MOST_EXCLUDED = 500
"""URNs on a command line; a stack of which more cannot be read has no plan worth knowing."""
_LAST_WORDS = 3


def view(session: Session) -> View:
    """What the engine sees. Resources that cannot be read are left out of a second look, for the plan.

    A preview takes no lock and keeps nothing of what it refreshed.
    """
    first = _seen(session, ())
    if not first.unread or len(first.unread) > _MOST_EXCLUDED:
        return first
    excluded = [word for urn in first.unread for word in ("--exclude", urn)]
    return engine.merged(first, _seen(session, excluded))


def _seen(session: Session, more: Sequence[str]) -> View:
    command = [
        *session.engine.command,
        "preview",
        "--stack",
        session.stack,
        "--refresh",
        "--json",
        "--non-interactive",
        *more,
    ]
    env = {**session.env, **_STREAM}
    # In a file: a pipe that nobody reads meanwhile would stop the engine once it is full.
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            cwd=session.project.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            return engine.read_lines(process.stdout or ())
        except engine.EventsError as error:
            process.wait()
            said.seek(0)
            words = said.read().decode(errors="replace").splitlines()
            last = [line.strip() for line in words if line.strip()][-_LAST_WORDS:]
            return View(failure="; ".join(last) or str(error))


def stack_output(session: Session, name: str) -> str | None:
    """A secret output of the stack in clear; None if it has none. Never printed."""
    done = subprocess.run(
        [
            *session.engine.command,
            "stack",
            "output",
            name,
            "--show-secrets",
            "--stack",
            session.stack,
            "--non-interactive",
        ],
        cwd=session.project.folder,
        env=session.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 and done.stdout.strip() else None


def say(text: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
