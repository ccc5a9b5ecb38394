"""One command over SSH: its streams, its end, its entry in the journal."""

import asyncio
import os
import time

import asyncssh

from lab.hosts import faults
from lab.hosts.call import Answer
from lab.hosts.host import Host

_CHUNK = 64 * 1024

GRACE_SECONDS = 2.0
"""How long a command may run on after its connection broke; a real one would run for ever."""


async def serve(host: Host, process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run what a client asks for, and end its channel with the command's exit code."""
    if process.subsystem is not None:
        process.stderr.write(f"no subsystem {process.subsystem!r} on this host\n".encode())
        process.exit(1)
        return
    command = process.command
    line = command or "(shell)"
    started = time.monotonic()
    exit_code: int | None = None
    closed = asyncio.create_task(process.wait_closed())
    try:
        exit_code = await _answer(host, process, command, line, closed)
    finally:
        closed.cancel()
        seconds = round(time.monotonic() - started, 4)
        host.machine.note("command", command=line, exit=exit_code, seconds=seconds)
        # The entry has to be there before the client knows that its command ended.
        if exit_code is not None:
            process.exit(exit_code)


async def _answer(
    host: Host,
    process: asyncssh.SSHServerProcess[bytes],
    command: str | None,
    line: str,
    closed: asyncio.Task[None],
) -> int | None:
    """Exit code of the command, None when the client went away before it ended."""
    injected = host.faults()
    delay = sum(fault.seconds for fault in injected.all(faults.Slow) if fault.concerns(line))
    if delay:
        await asyncio.wait({closed}, timeout=delay)
    if any(fault.concerns(line) for fault in injected.all(faults.Hang)):
        await closed
        return None
    prepared = host.prepared_answer(line)
    if prepared is not None:
        return _say(process, prepared)
    return await _run(host, process, command, closed)


def _say(process: asyncssh.SSHServerProcess[bytes], answer: Answer) -> int:
    process.stdout.write(answer.stdout.encode())
    process.stderr.write(answer.stderr.encode())
    return answer.exit


async def _run(
    host: Host,
    process: asyncssh.SSHServerProcess[bytes],
    command: str | None,
    closed: asyncio.Task[None],
) -> int | None:
    stdin_read, stdin_write = os.pipe()
    stdout_read, stdout_write = os.pipe()
    stderr_read, stderr_write = os.pipe()
    theirs = (stdin_read, stdout_write, stderr_write)
    try:
        running = await host.start(command, theirs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    feeding = asyncio.create_task(_feed(process, stdin_write))
    reading = asyncio.gather(
        _drain(stdout_read, process.stdout), _drain(stderr_read, process.stderr)
    )
    ended = asyncio.create_task(running.wait())
    try:
        await asyncio.wait({ended, closed}, return_when=asyncio.FIRST_COMPLETED)
        if closed.done():
            # As with OpenSSH a command is not told that its client went away: it reads the end of
            # its input and carries on, with whatever part of it had arrived.
            await asyncio.wait({ended}, timeout=GRACE_SECONDS)
            running.kill()
            return await ended
        await reading
        if running.problem:
            process.stderr.write(f"simulated host: {running.problem}\n".encode())
        return ended.result()
    finally:
        running.kill()
        feeding.cancel()
        reading.cancel()
        await asyncio.gather(feeding, reading, ended, return_exceptions=True)


async def _drain(descriptor: int, target: asyncssh.SSHWriter[bytes]) -> None:
    """Copy a pipe to the client until its end; a client that went away does not stop the end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    file = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file
    )
    try:
        while chunk := await reader.read(_CHUNK):
            target.write(chunk)
            await target.drain()
    except (asyncssh.Error, OSError):
        return
    finally:
        transport.close()


async def _feed(process: asyncssh.SSHServerProcess[bytes], descriptor: int) -> None:
    """Copy what the client sends to the command; ends when either side stops."""
    loop = asyncio.get_running_loop()
    file = os.fdopen(descriptor, "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while chunk := await process.stdin.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except (asyncssh.Error, OSError):
        return
    finally:
        transport.close()
