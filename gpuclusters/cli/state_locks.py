"""Locks of Pulumi's file backend, and whether the runs that took them are alive."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import psutil
import yaml

from gpuclusters.cli.unfinished import Fate, Lock, Process, fate, read_lock

BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
_FILES = "file://"
_ENGINES = ("pulumi", "-m engine")


def backend_url(project: Path, env: Mapping[str, str]) -> str:
    """Where Pulumi keeps the state of a project: variable, `Pulumi.yaml`, last login; empty if nobody says.

    Args:
        project: folder with `Pulumi.yaml`.
        env: environment that the engine is given.
    """
    if url := env.get(BACKEND_VARIABLE):
        return url
    document = yaml.safe_load((project / "Pulumi.yaml").read_text(encoding="utf-8"))
    if url := (document.get("backend") or {}).get("url"):
        return str(url)
    home = env.get("PULUMI_HOME") or str(Path(env.get("HOME") or Path.home()) / ".pulumi")
    try:
        login = json.loads((Path(home) / "credentials.json").read_text(encoding="utf-8"))
        return str(login.get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def folder_of(url: str) -> Path | None:
    """The folder of a file backend; None for others, whose locks only their service can judge."""
    if not url.startswith(_FILES):
        return None
    path = unquote(url.removeprefix(_FILES).partition("?")[0])
    return Path(path or ".").expanduser()


def locks(folder: Path, project: str, stack: str) -> Iterator[tuple[Lock, Fate]]:
    """The locks of a stack and what became of their runs; one that goes meanwhile is none."""
    here = socket.gethostname()
    for path in sorted((folder / ".pulumi/locks/organization" / project / stack).glob("*.json")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError:
            text = ""
        lock = read_lock(str(path), text)
        yield lock, fate(lock, here, _process(lock.pid))


def remove(file: str) -> None:
    """Let go of one lock, and of no other: `pulumi cancel` would also take one that was taken meanwhile."""
    Path(file).unlink(missing_ok=True)


def _process(pid: int) -> Process | None:
    if pid <= 0:
        return None
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        began = datetime.fromtimestamp(process.create_time(), UTC)
    except psutil.NoSuchProcess:
        return None
    try:
        words = " ".join([process.name(), *process.cmdline()])
    except psutil.Error:
        # Somebody else's: what it is cannot be seen, so it may be an engine.
        return Process(began, is_engine=True)
    return Process(began, is_engine=any(engine in words for engine in _ENGINES))
