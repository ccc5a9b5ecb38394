"""Commands on one machine over SSH: one kept connection, its key pinned, reconnected after a pause."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncssh

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 15
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
SESSIONS = 8
"""Commands at once; sshd's default allows ten sessions per connection."""


class HostError(Exception):
    """The machine was not reached, or a command got no answer; one sentence."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class SshAddress:
    """Where a machine answers, who asks, and how each proves who it is."""

    name: str
    address: str
    port: int
    user: str
    host_key: str
    private_key: str

    def __repr__(self) -> str:
        return f"SshAddress({self.user}@{self.address}:{self.port})"


class SshHost:
    """One machine. Commands run at once over one connection, which is made when one is wanted."""

    def __init__(self, address: SshAddress) -> None:
        self._address = address
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._failures = 0
        self._not_before = 0.0

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        """Run these words as root; the machine ends them after that time. `HostError` without an answer."""
        # `timeout` on the machine: what nobody waits for any more must not run on.
        line = shlex.join(["sudo", "-n", "timeout", "--kill-after=5", f"{seconds:g}", *command])
        try:
            async with asyncio.timeout(seconds + CONNECT_SECONDS), self._sessions:
                connection = await self._connected()
                return await self._run(connection, line)
        except TimeoutError as error:
            raise HostError(
                f"{self._address.name}: no answer to {command[0]} within {seconds:g} s"
            ) from error

    async def close(self) -> None:
        """Let the connection go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            await connection.wait_closed()

    async def _run(self, connection: asyncssh.SSHClientConnection, line: str) -> Done:
        try:
            done = await connection.run(line, check=False, encoding="utf-8", errors="replace")
        except (OSError, asyncssh.Error) as error:
            self._lost(connection)
            raise HostError(f"{self._address.name}: the connection broke: {error}") from error
        if done.exit_status is None or done.exit_status < 0:
            raise HostError(f"{self._address.name}: the command was ended by signal or broke off")
        return Done(done.exit_status, str(done.stdout or ""), str(done.stderr or ""))

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            wait = self._not_before - time.monotonic()
            if wait > 0:
                raise HostError(f"{self._address.name} is not reached; next try in {wait:.0f} s")
            try:
                self._connection = await self._connect()
            except (OSError, asyncssh.Error, TimeoutError) as error:
                self._failures += 1
                pause = min(
                    FIRST_PAUSE_SECONDS * 2.0 ** (self._failures - 1), LONGEST_PAUSE_SECONDS
                )
                self._not_before = time.monotonic() + pause
                raise HostError(f"{self._address.name} is not reached: {_why(error)}") from error
            self._failures = 0
            return self._connection

    async def _connect(self) -> asyncssh.SSHClientConnection:
        to = self._address
        where = to.address if to.port == 22 else f"[{to.address}]:{to.port}"
        return await asyncssh.connect(
            to.address,
            to.port,
            username=to.user,
            client_keys=[asyncssh.import_private_key(to.private_key)],
            known_hosts=asyncssh.import_known_hosts(f"{where} {to.host_key}\n"),
            config=None,
            agent_path=None,
            connect_timeout=CONNECT_SECONDS,
            login_timeout=CONNECT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
        )

    def _lost(self, connection: asyncssh.SSHClientConnection) -> None:
        if self._connection is connection:
            self._connection = None
        connection.abort()


def _why(error: BaseException) -> str:
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "it shows another host key than the one that is pinned"
    if isinstance(error, asyncssh.PermissionDenied):
        return "it does not accept the key of the controllers"
    return str(error) or type(error).__name__
