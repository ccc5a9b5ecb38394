"""Locks of Pulumi's file backend (`pkg/backend/diy/lock.go`), and whether their runs are alive."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

import psutil
import yaml

BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
_FILES = "file://"
_ENGINES = ("pulumi", "-m engine")
CLOCK_SECONDS = 5.0
"""A process that began this long after its lock was written is another one with the same number."""


class Fate(StrEnum):
    """What became of the run that took a lock."""

    DEAD = "dead"
    RUNS = "runs"
    ELSEWHERE = "elsewhere"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of a file backend, as its file says; `pid` is 0 where the file says nothing."""

    file: str
    pid: int = 0
    user: str = ""
    host: str = ""
    since: datetime | None = None

    @property
    def holder(self) -> str:
        """Who took it, for a sentence."""
        when = "" if self.since is None else f" since {self.since:%Y-%m-%d %H:%M:%S %z}"
        return f"process {self.pid} of {self.user}@{self.host}{when}"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this computer."""

    began: datetime
    is_engine: bool
    """Whether its command line could be that of an engine."""


def read_lock(file: str, text: str) -> Lock:
    """A lock from its file; one that says nothing is somebody's all the same."""
    try:
        content = json.loads(text)
        user, host = str(content["username"]), str(content["hostname"])
        since = datetime.fromisoformat(str(content["timestamp"]))
        since = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
        return Lock(file, int(content["pid"]), user, host, since)
    except (ValueError, KeyError, TypeError):
        return Lock(file)


def fate(lock: Lock, here: str, process: Process | None) -> Fate:
    """What became of the run that took it; `process` is what has its number on this computer now."""
    if lock.pid <= 0 or lock.since is None:
        return Fate.UNREADABLE
    if lock.host != here:
        return Fate.ELSEWHERE
    if process is None:
        return Fate.DEAD
    # The clock may have been set since, so that an engine is never taken for dead by its time.
    later = (process.began - lock.since).total_seconds() > CLOCK_SECONDS
    return Fate.DEAD if later and not process.is_engine else Fate.RUNS


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
