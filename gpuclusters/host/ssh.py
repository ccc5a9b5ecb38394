"""SSH to the hosts: blocking calls from any thread over one connection per host, host key always checked."""

import asyncio
import contextlib
import errno
import os
import shlex
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncssh

from gpuclusters.core.errors import (
    AdapterError,
    BusyError,
    CommandTimeoutError,
    DeniedError,
    InvalidAnswerError,
    UnreachableError,
)
from gpuclusters.host.connect import CONNECT_ATTEMPTS, SshCredentials, connect
from gpuclusters.host.machine_lock import MachineLock
from gpuclusters.host.model import HostConnection

# Our commands read and write small files and ask a daemon; one that takes a minute hangs.
COMMAND_TIMEOUT_SECONDS = 60.0
COMMAND_TIMEOUT_VARIABLE = "GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS"
# The largest file that we keep has half of it; more means that a wrong file or command was named.
MAX_OUTPUT_BYTES = 1024 * 1024
# A connection that drops while reading is worth two more tries; a host that drops three in a row
# needs a human.
READ_ATTEMPTS = 3
# sshd opens 10 on one connection (MaxSessions) and refuses the next; the lock on the machine has one too.
SESSIONS_AT_ONCE = 8
LONGEST_SESSION_PAUSE_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended. `status` is -1 when a signal ended it."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class SshHost:
    """Runs commands on one host. Cheap to make; connections are shared through the pool."""

    def __init__(
        self,
        connection: HostConnection,
        credentials: SshCredentials,
        *,
        connect_attempts: int = CONNECT_ATTEMPTS,
    ) -> None:
        self.connection = connection
        self._credentials = credentials
        self._connect_attempts = connect_attempts
        self._timeout = _command_timeout()

    @property
    def target(self) -> str:
        return self.connection.target

    @property
    def exclusive(self) -> threading.Lock:
        """Held while a change must not overlap with another one on this host."""
        return pool().lock(self.connection)

    @contextlib.contextmanager
    def writing(self, tried: str) -> Iterator[None]:
        """Have the machine alone for changes; `MachineBusyError` if another process keeps it."""
        lock = pool().writer(self.connection, self._timeout)
        pool().run(lock.enter(self._link, tried))
        try:
            yield
        finally:
            pool().run(lock.leave())

    async def _link(self, tried: str) -> asyncssh.SSHClientConnection:
        return await pool().link(self.connection, self._credentials, tried, self._connect_attempts)

    def run(
        self,
        argv: Sequence[str],
        *,
        tried: str,
        stdin: bytes = b"",
        repeatable: bool = False,
        timeout_seconds: float | None = None,
        as_root: bool = True,
    ) -> Completed:
        """Run a command and wait for its end, whatever its exit status.

        `argv` never holds a secret: it is in the process list. `tried` is what it is for, in the words of the
        error; a `repeatable` one only reads, and is run again when the connection breaks. A quick one needs
        no timeout; `as_root` is with `sudo`, unless the account is root itself.
        """
        becoming = "sudo -n " if as_root and self.connection.user != "root" else ""
        command = shlex.join(argv)
        attempts = READ_ATTEMPTS if repeatable else 1
        timeout = max(self._timeout, timeout_seconds or 0)
        while True:
            attempts -= 1
            try:
                held = "" if repeatable else self._held(tried, as_root=as_root)
                return pool().run(
                    self._execute(f"{becoming}{held}{command}", tried, stdin, timeout)
                )
            except BrokenOffError:
                if attempts <= 0:
                    raise

    def _held(self, tried: str, *, as_root: bool) -> str:
        """What a command that changes something begins with; takes the lock again if it fell meanwhile."""
        lock = pool().known_writer(self.connection)
        if lock is None:
            return ""
        pool().run(lock.renew(self._link, tried))
        return lock.prefix if as_root else ""

    async def _execute(self, command: str, tried: str, stdin: bytes, timeout: float) -> Completed:
        link = await self._link(tried)
        try:
            async with pool().sessions(self.connection), asyncio.timeout(timeout):
                return await self._communicate(link, command, tried, stdin)
        except TimeoutError as error:
            problem = f"the command did not end within {timeout:g} s ({command[:200]})"
            remedy = (
                "look on the host for what it waits for; the step can simply be run again "
                f"(a slow host: set {COMMAND_TIMEOUT_VARIABLE})"
            )
            raise CommandTimeoutError(self.target, tried, problem, remedy) from error
        except (OSError, asyncssh.Error) as error:
            problem = f"the connection broke off ({str(error) or type(error).__name__})"
            remedy = (
                "check the host and its network, then run again: the step compares before it acts"
            )
            raise BrokenOffError(self.target, tried, problem, remedy) from error

    async def _communicate(
        self, link: asyncssh.SSHClientConnection, command: str, tried: str, stdin: bytes
    ) -> Completed:
        process = await _started(link, command)
        try:
            with contextlib.suppress(BrokenPipeError):  # it says why on its standard error
                process.stdin.write(stdin)
                process.stdin.write_eof()
            stdout, stderr = await asyncio.gather(
                _read_capped(process.stdout), _read_capped(process.stderr)
            )
            await process.wait_closed()
        finally:
            # Only matters when we give up early: ends the channel, the connection stays.
            process.close()
        if len(stdout) > MAX_OUTPUT_BYTES:
            problem = f"the command printed more than {MAX_OUTPUT_BYTES} bytes"
            remedy = "check that the path names the file you mean"
            raise InvalidAnswerError(self.target, tried, problem, remedy)
        if process.exit_status is None and process.exit_signal is None:
            raise asyncssh.ConnectionLost("no exit status came")
        status = process.exit_status
        return Completed(-1 if status is None else status, stdout, stderr.decode(errors="replace"))


async def _started(
    link: asyncssh.SSHClientConnection, command: str
) -> asyncssh.SSHClientProcess[bytes]:
    """Start a command; again where sshd still counts sessions (MaxSessions) whose end we have seen."""
    pause = 0.1
    while True:
        try:
            return await link.create_process(command, encoding=None)
        except asyncssh.ChannelOpenError:
            if pause > LONGEST_SESSION_PAUSE_SECONDS:
                raise
            await asyncio.sleep(pause)
            pause *= 2


def _command_timeout() -> float:
    text = os.environ.get(COMMAND_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else COMMAND_TIMEOUT_SECONDS
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        where, tried = f"{COMMAND_TIMEOUT_VARIABLE}={text}", "set the time limit of commands"
        raise AdapterError(where, tried, "it is no positive number", "write seconds, like 120")
    return seconds


class BrokenOffError(UnreachableError, code="remote.broken-off"):
    """The connection broke while a command ran: what it did is not known."""


async def _read_capped(reader: asyncssh.SSHReader[bytes]) -> bytes:
    """All output up to just over the cap; what follows is read and dropped, so that it ends."""
    kept = bytearray()
    while chunk := await reader.read(65536):
        if len(kept) <= MAX_OUTPUT_BYTES:
            kept += chunk
    return bytes(kept)


class SshPool:
    """The background event loop and the connections in it, one per host."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._links: dict[HostConnection, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._writers: dict[str, MachineLock] = {}
        self._sessions: dict[HostConnection, asyncio.Semaphore] = {}
        self._guard = threading.Lock()
        # Daemon: a provider process ends without telling, and nothing here has to be saved.
        threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the event loop and wait for the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def sessions(self, connection: HostConnection) -> asyncio.Semaphore:
        """Held by each command while it runs, in the event loop."""
        return self._sessions.setdefault(connection, asyncio.Semaphore(SESSIONS_AT_ONCE))

    def lock(self, connection: HostConnection) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(connection.host, threading.Lock())

    def writer(self, connection: HostConnection, timeout_seconds: float) -> MachineLock:
        """The lock that this process takes on the machine itself; one, whoever logs in."""
        with self._guard:
            if connection.host not in self._writers:
                self._writers[connection.host] = MachineLock(connection.target, timeout_seconds)
            return self._writers[connection.host]

    def known_writer(self, connection: HostConnection) -> MachineLock | None:
        """The same, if it was ever asked for."""
        return self._writers.get(connection.host)

    async def link(
        self,
        connection: HostConnection,
        credentials: SshCredentials,
        tried: str,
        attempts: int = CONNECT_ATTEMPTS,
    ) -> asyncssh.SSHClientConnection:
        """The open connection to the host; opened if there is none, by the first who asks."""
        task = self._links.get(connection)
        if task is None or _is_dead(task):
            task = asyncio.create_task(connect(connection, credentials, tried, attempts))
            self._links[connection] = task
        # Shielded: one caller that gives up must not take the connection from the others.
        return await asyncio.shield(task)


def _is_dead(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().is_closed()


_POOL_GUARD = threading.Lock()
_POOL: list[SshPool] = []


def pool() -> SshPool:
    """This process's pool, made at first use."""
    with _POOL_GUARD:  # else two threads make one each, and connections live in two loops
        if not _POOL:
            _POOL.append(SshPool())
        return _POOL[0]


LOOPBACK = "127.0.0.1"
_CLOSE_SECONDS = 5.0
_TAKEN = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Forward:
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
