"""A port of this computer that leads through SSH to a port on a host, as long as somebody needs it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import asyncssh

from gpuclusters.core.errors import AdapterError, BusyError, DeniedError, UnreachableError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import pool

LOOPBACK = "127.0.0.1"
_CLOSE_SECONDS = 5.0
_TAKEN = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Forward:
    """An open one."""

    target: str
    port: int
    """On 127.0.0.1 of this computer."""
    _link: asyncssh.SSHClientConnection

    def wait_until_lost(self) -> None:
        """Return when the connection to the host is no more."""
        pool().run(self._link.wait_closed())


@contextmanager
def forward(
    connection: HostConnection, credentials: SshCredentials, *, local_port: int, remote_port: int
) -> Iterator[Forward]:
    """Forward 127.0.0.1:local_port (0: any that is free) to 127.0.0.1:remote_port on the host."""
    link, listener = pool().run(_open(connection, credentials, local_port, remote_port))
    try:
        yield Forward(connection.target, listener.get_port(), link)
    finally:
        pool().run(_close(listener))


async def _open(
    connection: HostConnection, credentials: SshCredentials, local_port: int, remote_port: int
) -> tuple[asyncssh.SSHClientConnection, asyncssh.SSHListener]:
    kind: type[AdapterError]
    tried = f"open a tunnel to its port {remote_port}"
    link = await pool().link(connection, credentials, tried)
    try:
        # Once: a port that does not answer is better told now than by every client.
        _, writer = await link.open_connection(LOOPBACK, remote_port)
    except asyncssh.Error as error:
        kind, problem, remedy = UnreachableError, str(error), "run again"
        if isinstance(error, asyncssh.ChannelOpenError):
            problem = f"nothing answers on 127.0.0.1:{remote_port} there ({error.reason})"
            remedy = (
                "look there whether the cluster runs (`docker ps`); `gpu-clusters up` starts it"
            )
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                kind, problem = DeniedError, "its SSH server allows no forwarding"
                remedy = "set AllowTcpForwarding local in its sshd_config, or reach the API at an address"
        raise kind(connection.target, tried, problem, remedy) from error
    writer.close()
    try:
        listener = await link.forward_local_port(LOOPBACK, local_port, LOOPBACK, remote_port)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        raise BusyError(
            f"{LOOPBACK}:{local_port}",
            f"listen there for the tunnel to {connection.target}",
            "another program listens there, perhaps another tunnel",
            f"end it (`ss -ltnp 'sport = :{local_port}'` names it), or state another port",
        ) from error
    return link, listener


async def _close(listener: asyncssh.SSHListener) -> None:
    listener.close()
    with suppress(TimeoutError):
        # Nobody new comes in; who is still there ends with the connection to the host.
        await asyncio.wait_for(listener.wait_closed(), timeout=_CLOSE_SECONDS)
