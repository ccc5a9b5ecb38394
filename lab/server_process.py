"""A server of the lab that outlives the command that starts it: found again, started, ended."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

_SAME_TIME_SECONDS = 10.0
"""By how much one process's start may seem to move: it is told by the machine's clock, which is set now and
then, in whole seconds. Pids are not used again that soon."""
_KILLED_SECONDS = 120.0
"""For a process that was killed to be gone, and those that end with it."""
_POLL_SECONDS = 0.02
_PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """Where a server keeps what others must find; servers add paths of their own."""

    path: Path

    @property
    def ready(self) -> Path:
        """What it serves, written by itself when it does."""
        return self.path / "ready.json"

    @property
    def process(self) -> Path:
        """Which process serves: pid and start time."""
        return self.path / "process.json"

    @property
    def log(self) -> Path:
        """Its standard error."""
        return self.path / "server.log"

    @property
    def start_lock(self) -> Path:
        """Held by whoever starts or stops it."""
        return self.path / "start.lock"

    @property
    def serve_lock(self) -> Path:
        """Held by it as long as it lives."""
        return self.path / "serve.lock"


def living(record: Mapping[str, Any] | None) -> psutil.Process | None:
    """The process of a record with `pid` and `created`, if it still runs.

    A pid alone does not prove it: pids are used again.
    """
    if record is None:
        return None
    try:
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["created"]) < _SAME_TIME_SECONDS
        alive = process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if same and alive else None


def spawn(module: str, folder: Path, log: IO[bytes], **variables: str) -> subprocess.Popen[bytes]:
    """`python -m MODULE serve FOLDER` in a session of its own, from this checkout; with these variables."""
    import_path = os.pathsep.join(filter(None, [str(_PROJECT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", module, "serve", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": import_path, **variables},
    )


def end(server: psutil.Process, seconds: float) -> None:
    """Ask it to end, insist after so many seconds; afterwards neither it nor a child of it runs."""
    try:
        children = server.children(recursive=True)
        server.terminate()
    except psutil.NoSuchProcess:
        return
    try:
        server.wait(seconds)
    except psutil.TimeoutExpired:
        server.kill()
        server.wait(_KILLED_SECONDS)
    # They end with the server; waiting for it is what makes "stopped" true.
    deadline = time.monotonic() + _KILLED_SECONDS
    while any(map(runs, children)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def runs(process: psutil.Process) -> bool:
    """Whether it does; one that nobody collects does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock that belongs to this process alone and goes with it; waits."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
