"""One process of a container: started, its output written to a log line by line, ended for certain."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from functools import partial
from pathlib import Path

from lab.kubelet.environment import Launch
from lab.kubelet.logs import ContainerLog

_SET_PARENT_DEATH_SIGNAL = 1
_LINE_BYTES = 16 * 1024
_DRAIN_SECONDS = 2.0
_libc = ctypes.CDLL(None)


class Process:
    """A running process; it dies with this one, however that ends."""

    def __init__(self, process: asyncio.subprocess.Process, log: ContainerLog, run: int) -> None:
        self._process = process
        self._reading = [
            asyncio.create_task(_copy(stream, log, run, name))
            for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            if stream is not None
        ]

    @classmethod
    async def start(cls, launch: Launch, folder: Path, log: ContainerLog, run: int) -> Process:
        process = await asyncio.create_subprocess_exec(
            *launch.arguments,
            env=dict(launch.environment),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LINE_BYTES,
            preexec_fn=partial(_die_with, os.getpid()),
        )
        return cls(process, log, run)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code, as a container's: 128 and more for a signal."""
        code = await self._process.wait()
        # Something that it started may keep the pipes open.
        await asyncio.wait(self._reading, timeout=_DRAIN_SECONDS)
        for task in self._reading:
            task.cancel()
        return code if code >= 0 else 128 - code

    async def stop(self, grace_seconds: float) -> None:
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
                return
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # The whole session: what it started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


async def _copy(stream: asyncio.StreamReader, log: ContainerLog, run: int, name: str) -> None:
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                log.append(run, name, error.partial)
            return
        except asyncio.LimitOverrunError as error:
            # As container runtimes do: a line that is too long becomes several.
            line = await stream.readexactly(max(error.consumed, 1))
        log.append(run, name, line.rstrip(b"\n"))


def _die_with(parent: int) -> None:
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        # It ended before the kernel knew what to do then.
        os._exit(1)
