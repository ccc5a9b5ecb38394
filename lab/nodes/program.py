"""A program of a node as the node's first process keeps it: started, watched, its last words kept."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from lab.control_plane.processes import last_words_of

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_TAIL_BYTES = 64 << 10


class Program:
    """One program of the node, which runs as long as it is wanted.

    `answers` is where it listens once it works: the path of a socket, or an address with a port; empty for
    one that listens nowhere.
    """

    def __init__(self, name: str, command: list[str], log: Path, path: str, answers: str) -> None:
        self.name = name
        self.wanted = False
        self.pid: int | None = None
        self.words = ""
        """What it said when it ended by itself; empty again once it works."""
        self._command = command
        self._log = log
        self._path = path
        self._answers = answers
        self._begin = 0

    @property
    def runs(self) -> bool:
        return self.pid is not None

    def start(self) -> None:
        """Start it; its output goes to its log."""
        self.wanted = True
        with self._log.open("ab") as out:
            self._begin = out.tell()
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                # Nothing of the user's: a proxy would send it elsewhere.
                env={"PATH": self._path, "HOME": "/root"},
                start_new_session=True,
            )
        self.pid = child.pid
        # The one that reaps is not Popen but the first process for all that is in the node.
        child.returncode = 0

    async def works(self, seconds: float) -> bool:
        """Wait until it answers; False when it has ended, or is alive and silent for so long."""
        deadline = time.monotonic() + seconds
        while self.pid is not None and self._answers:
            if _answers(self._answers):
                self.words = ""
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return self.pid is not None

    async def stop(self) -> None:
        self.wanted = False
        self.words = ""
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.pid is not None:
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)

    def ended(self, status: int) -> None:
        self.pid = None
        if self.wanted:
            with self._log.open("rb") as log:
                log.seek(max(self._begin, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                said = last_words_of(log.read().decode(errors="replace"))
            code = os.waitstatus_to_exitcode(status)
            self.words = f"{self.name} ended with {code}: {said}"

    def _send(self, number: int) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _answers(where: str) -> bool:
    try:
        if where.startswith("/"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(where)
        else:
            address, _, port = where.partition(":")
            socket.create_connection((address, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
