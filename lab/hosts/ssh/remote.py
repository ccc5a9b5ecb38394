"""Runs a command on a simulated host the way a user would: over SSH."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import asyncssh

from lab.hosts.model import HostEndpoint, HostsError
from lab.hosts.process import status


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
        # /dev/null cannot be waited for in an event loop; a terminal can.
        is_null = not sys.stdin.isatty() and stat.S_ISCHR(os.fstat(0).st_mode)
        done = await connection.run(
            command,
            encoding=None,
            stdin=asyncssh.DEVNULL if is_null else os.dup(0),
            stdout=os.dup(1),
            stderr=os.dup(2),
        )
        return 255 if done.returncode is None else done.returncode
