"""`drift`: asks the engine for a refresh that writes nothing, and for what a following `up` would do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from gpuclusters.cli.stack import Session
from gpuclusters.drift import engine
from gpuclusters.drift.engine import View

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
    env: Mapping[str, str] = {**session.env, **_STREAM}
    done = subprocess.run(
        command,
        cwd=session.project.folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        return engine.read(done.stdout)
    except engine.EventsError as error:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = "; ".join(words[-_LAST_WORDS:])
        return View(failure=said or str(error))


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
