"""The processes of a control plane: recognised, started detached, stopped for certain.

No file of pids: a process of this lab is one of our programs, of this user, whose arguments point
into the lab's folder. Such a record can be neither stale nor lost.
"""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.control_plane.commands import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    PROCESSES,
    SCHEDULER,
)
from lab.control_plane.layout import Layout
from lab.server_process import runs

_KILL_SECONDS = 120.0
_STOP_ORDER = ((SCHEDULER, CONTROLLER_MANAGER), (API_SERVER,), (ETCD,))
# Go's log formats: `E1121 10:11:12 file.go:1] text`, and the JSON of etcd.
_MATTERS = re.compile(
    r'^[EF]\d{4} |^[Ee]rror:|^panic:|"level":"(error|fatal|panic|ERROR)"|^\s*Error '
)
_LOG_LINES = 3
_LINE_CHARACTERS = 400

# A process handle that is collected while the process runs makes Python complain; these processes
# are meant to outlive us.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Running:
    name: str
    process: psutil.Process
    command: tuple[str, ...]


def find(layout: Layout) -> list[Running]:
    """All living processes that belong to this lab, in the order of starting."""
    mark = f"{layout.root}{os.sep}"
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            name = Path(command[0]).name if command else ""
            if name in PROCESSES and any(mark in argument for argument in command[1:]):
                found.append(Running(name, process, tuple(command)))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            # Gone meanwhile, or another user's: not of this lab.
            continue
    return sorted(found, key=lambda running: PROCESSES.index(running.name))


def spawn(name: str, command: Sequence[str], layout: Layout) -> Running:
    """Start a process in a session of its own; its output goes to its log."""
    log = layout.log(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            cwd=layout.root,
            env=_environment(layout),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _started.append(child)
    return Running(name, psutil.Process(child.pid), tuple(command))


def is_alive(running: Running) -> bool:
    """Whether the process still runs; one that ended but was not waited for does not."""
    return runs(running.process)


def stop(processes: Iterable[Running], *, grace_seconds: float) -> list[str]:
    """End the processes, clients before their servers, and wait until they are gone.

    Each is asked to end and has `grace_seconds`, then it is killed. Returns the names of those
    that had to be killed.
    """
    living = list(processes)
    killed: list[str] = []
    for group in _STOP_ORDER:
        members = [running for running in living if running.name in group]
        for running in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                running.process.terminate()
                # A suspended process acts on nothing but SIGKILL until it is woken.
                running.process.resume()
        deadline = time.monotonic() + grace_seconds
        for running in members:
            if not _wait_gone(running, deadline):
                killed.append(running.name)
                with contextlib.suppress(psutil.NoSuchProcess):
                    running.process.kill()
                _wait_gone(running, time.monotonic() + _KILL_SECONDS)
    _reap()
    return killed


def _wait_gone(running: Running, deadline: float) -> bool:
    while is_alive(running):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _reap() -> None:
    _started[:] = [child for child in _started if child.poll() is None]


def last_words(log: Path) -> str:
    """The lines at the end of a log that say what went wrong, on one line."""
    try:
        return last_words_of(log.read_text(errors="replace"))
    except FileNotFoundError:
        return "it wrote no log"


def last_words_of(text: str) -> str:
    lines = text.splitlines()
    lines = [line.strip() for line in lines if line.strip()]
    chosen = [line for line in lines if _MATTERS.search(line)][-_LOG_LINES:] or lines[-_LOG_LINES:]
    return " / ".join(line[:_LINE_CHARACTERS] for line in chosen) or "its log is empty"


def _environment(layout: Layout) -> dict[str, str]:
    # Nothing of the user's: a proxy or a KUBECONFIG would send the processes elsewhere.
    kept = ("PATH", "TMPDIR", "LANG", "TZ")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(layout.root)
    }
