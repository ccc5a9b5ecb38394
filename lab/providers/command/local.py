"""Commands on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from lab.providers.calls import ProviderError
from lab.providers.command.output import Capture, Finished

_BLOCK: Final = 65536
_STOP_SECONDS: Final = 2.0


async def run(
    arguments: Sequence[str],
    *,
    directory: str | None,
    stdin: str | None,
    environment: Mapping[str, str],
    capture: Capture,
) -> Finished:
    """Run a program to its end; a cancelled task ends it and what it started.

    Raises:
        ProviderError: it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    except OSError as error:
        where = f" in {directory}" if directory else ""
        raise ProviderError(f"{arguments[0]} cannot be started{where}: {error.strerror}") from error
    try:
        await asyncio.gather(
            _feed(process.stdin, stdin),
            _drain(process.stdout, capture, "stdout"),
            _drain(process.stderr, capture, "stderr"),
        )
        code = await process.wait()
    finally:
        await _stop(process)
    return Finished(code, capture.text("stdout"), capture.text("stderr"))


async def _feed(writer: asyncio.StreamWriter | None, text: str | None) -> None:
    if writer is None:
        return
    # A command may end, or close its input, without reading all of it.
    with contextlib.suppress(ConnectionError):
        writer.write((text or "").encode())
        await writer.drain()
    writer.close()


async def _drain(reader: asyncio.StreamReader | None, capture: Capture, stream: str) -> None:
    while reader is not None and (block := await reader.read(_BLOCK)):
        capture.add(stream, block)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the whole group of a process that still runs: politely first."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), _STOP_SECONDS)
