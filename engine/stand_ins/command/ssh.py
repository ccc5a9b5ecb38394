"""SSH: dialling with a pinned host key, one command per connection, what it says."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import asyncssh

from engine.answers import ProviderError
from engine.stand_ins.command.connection import Connection

_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 3.0
_KEEPALIVE_SECONDS: Final = 15
_BLOCK: Final = 65536
LIMIT_BYTES: Final = 1 << 20
_LAST_LINES: Final = 10
_LAST_CHARACTERS: Final = 2000


@dataclass
class Output:
    """What a command says, each stream up to a limit; `cut` names those that went on."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    cut: set[str] = field(default_factory=set)

    def add(self, stream: str, block: bytes) -> None:
        kept: bytearray = getattr(self, stream)
        room = LIMIT_BYTES - len(kept)
        kept += block[:room]
        if len(block) > room:
            self.cut.add(stream)

    def text(self, stream: str) -> str:
        """All that was kept, without the last line end, as the real provider has it."""
        kept: bytearray = getattr(self, stream)
        return kept.decode(errors="replace").removesuffix("\n")

    @property
    def last_words(self) -> str:
        """Its end, for an error message; that of stderr if there is anything."""
        text = self.text("stderr").strip() or self.text("stdout").strip()
        return "\n".join(text.splitlines()[-_LAST_LINES:])[-_LAST_CHARACTERS:]


@asynccontextmanager
async def connected(connection: Connection) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """An open connection; closed when the block ends.

    Raises:
        ProviderError: it cannot be opened; the host, what was tried and why.
    """
    opened = await _dial(connection)
    try:
        yield opened
    finally:
        await _close(opened)


async def _dial(connection: Connection) -> asyncssh.SSHClientConnection:
    """Dial until it works, the host refuses us, or the limit of failed attempts is passed."""
    failures, pause = 0, _RETRY_SECONDS
    while True:
        try:
            return await _dial_once(connection)
        except asyncssh.HostKeyNotVerifiable as error:
            raise ProviderError(
                f"{connection.address} shows another host key than hostKey pins ({error}). Find out which is "
                "the host's own before changing hostKey: it may be another machine"
            ) from error
        except asyncssh.PermissionDenied as error:
            raise ProviderError(
                f"{connection.address} does not let us in ({error.reason}); check user and key"
            ) from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            failures += 1
            if 0 <= connection.dial_error_limit < failures:
                raise ProviderError(
                    f"{connection.address} cannot be reached: {_said(error)} "
                    f"(after {failures} attempts); is it on, and is the port right?"
                ) from error
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_RETRY_SECONDS)


async def _dial_once(connection: Connection) -> asyncssh.SSHClientConnection:
    async with _keys(connection) as keys:
        return await asyncio.wait_for(
            asyncssh.connect(
                connection.host,
                connection.port,
                username=connection.user,
                client_keys=keys,
                agent_path=None,
                known_hosts=([asyncssh.import_public_key(connection.host_key)], [], []),
                config=None,
                keepalive_interval=_KEEPALIVE_SECONDS,
            ),
            connection.dial_seconds or None,
        )


@asynccontextmanager
async def _keys(connection: Connection) -> AsyncIterator[list[Any]]:
    """The private key and the agent's keys; the agent is open while they are used.

    Raises:
        ProviderError: a key cannot be used, or there is nothing to log in with.
    """
    keys: list[Any] = []
    if connection.private_key:
        keys.append(_private_key(connection))
    agent = await _agent()
    try:
        if agent is not None:
            keys += await agent.get_keys()
        if not keys:
            raise ProviderError(
                f"there is nothing to log in to {connection.address} with: set privateKey, or "
                "start an SSH agent that has a key (SSH_AUTH_SOCK)"
            )
        yield keys
    finally:
        if agent is not None:
            agent.close()


def _private_key(connection: Connection) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_private_key(str(connection.private_key))
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise ProviderError(
            f"the privateKey for {connection.address} cannot be used: {error}"
        ) from error


async def _agent() -> asyncssh.SSHAgentClient | None:
    """The agent of the environment, if it answers."""
    path = os.environ.get("SSH_AUTH_SOCK")
    if not path:
        return None
    try:
        return await asyncssh.connect_agent(path)
    except (OSError, asyncssh.Error):
        return None


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (
        getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error) or repr(error)
    )


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    try:
        await asyncio.wait_for(connection.wait_closed(), _CLOSE_SECONDS)
    except (TimeoutError, OSError, asyncssh.Error):
        connection.abort()


async def run(
    connection: asyncssh.SSHClientConnection, command: str, stdin: str | None, output: Output
) -> int:
    """Run one command to its end and give its exit code; a cancelled task ends the command too."""
    process = await connection.create_process(command, encoding=None)
    try:
        # A command may end, or close its input, without reading all of it.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write((stdin or "").encode())
            process.stdin.write_eof()
        await asyncio.gather(
            _drain(process.stdout, output, "stdout"), _drain(process.stderr, output, "stderr")
        )
        await process.wait_closed()
    except asyncio.CancelledError:
        process.terminate()
        raise
    if process.returncode is None:
        raise ConnectionError("the connection was lost before the command ended")
    return process.returncode


async def _drain(reader: asyncssh.SSHReader[bytes], output: Output, stream: str) -> None:
    while block := await reader.read(_BLOCK):
        output.add(stream, block)
