"""Runs a command on a simulated host the way a user would: over SSH."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import asyncssh

from lab.hosts.model import HostEndpoint, HostsError
from lab.hosts.process import status

_CHUNK = 64 * 1024


def execute(folder: Path, host: str, command: str, client_key: Path | None = None) -> int:
    """Run `command` on a host with this process's input and output; returns its exit code.

    Raises:
        HostsError: no such host, no server, or the connection failed.
    """
    found = status(folder)
    if not found.running:
        raise HostsError(f"the hosts in {folder} do not run ({found.detail}); start the lab first")
    if host not in found.hosts:
        raise HostsError(f"there is no host {host!r}; there are {', '.join(sorted(found.hosts))}")
    key = client_key or folder.resolve().parent / "ssh" / "id_ed25519"
    try:
        return asyncio.run(_execute(found.hosts[host], command, key))
    except (asyncssh.Error, OSError) as error:
        raise HostsError(f"{host}: {error}") from error


async def _execute(endpoint: HostEndpoint, command: str, key: Path) -> int:
    async with asyncssh.connect(
        endpoint.address,
        endpoint.port,
        username=endpoint.user,
        client_keys=[str(key)],
        known_hosts=asyncssh.import_known_hosts(endpoint.known_host),
        agent_path=None,
        config=None,
    ) as connection:
        process: asyncssh.SSHClientProcess[bytes] = await connection.create_process(
            command, encoding=None
        )
        _forward_input(process, asyncio.get_running_loop())
        await asyncio.gather(
            _copy(process.stdout, sys.stdout.fileno()), _copy(process.stderr, sys.stderr.fileno())
        )
        await process.wait_closed()
        return 255 if process.returncode is None else process.returncode


async def _copy(source: asyncssh.SSHReader[bytes], descriptor: int) -> None:
    while data := await source.read(_CHUNK):
        while data:
            data = data[os.write(descriptor, data) :]


def _forward_input(
    process: asyncssh.SSHClientProcess[bytes], loop: asyncio.AbstractEventLoop
) -> None:
    """Send standard input from a thread: files and /dev/null cannot be waited for in the loop.

    The thread may still wait for a terminal when the command has ended; a daemon does not hold up
    the end of this process.
    """

    def send(data: bytes) -> None:
        if process.is_closing():
            return
        if data:
            process.stdin.write(data)
        else:
            process.stdin.write_eof()

    def read() -> None:
        data = b" "
        while data:
            data = os.read(0, _CHUNK)
            if loop.is_closed():
                return
            loop.call_soon_threadsafe(send, data)

    threading.Thread(target=read, daemon=True).start()
