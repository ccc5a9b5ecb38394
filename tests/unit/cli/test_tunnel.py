"""A tunnel to the API through a real SSH server of this test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import asyncssh
import pytest

from gpuclusters.cli import tunnel
from gpuclusters.cli.errors import UsageError
from gpuclusters.core.errors import AdapterError, BusyError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import forward
from tests.unit.cli.conftest import ROOT, looping

HELLO = b"this is the API\n"
SECONDS = 120
"""For what takes none, however slow the machine."""
CLIENT = (
    "import socket,sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    "sys.exit(3 if s.recv(100) == b'this is the API\\n' else 4)"
)


@dataclass
class Server:
    """An SSH server with an API behind it."""

    connection: HostConnection
    credentials: SshCredentials
    api: int
    drop: Callable[[], None]
    """Break all connections."""

    def hold(self, *command: str, local_port: int = 0, api: int | None = None) -> int:
        """A command's exit code, through a tunnel of its own."""
        way = (self.connection, self.credentials, local_port, api or self.api)
        with tunnel.opened(*way) as opened:
            return tunnel.hold(opened, command)


class Door(asyncssh.SSHServer):
    """One that is closed is as OpenSSH with `AllowTcpForwarding no`."""

    def __init__(self, made: list[asyncssh.SSHServerConnection], *, closed: bool) -> None:
        self.made, self.closed = made, closed

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.made.append(conn)

    def begin_auth(self, username: str) -> bool:
        return False

    def connection_requested(self, host: str, port: int, orig_host: str, orig_port: int) -> bool:
        if self.closed:
            prohibited = asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
            raise asyncssh.ChannelOpenError(prohibited, "open failed")
        return True


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)
    await writer.drain()
    writer.close()


@contextlib.contextmanager
def served(*, closed: bool = False) -> Iterator[Server]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    private, public = key.export_private_key().decode(), key.export_public_key().decode()
    made: list[asyncssh.SSHServerConnection] = []
    door = partial(Door, made, closed=closed)

    async def drop() -> None:
        for one in made:
            one.abort()

    with looping() as run:
        ssh = run(asyncssh.create_server(door, "127.0.0.1", 0, server_host_keys=[key]))
        api = run(asyncio.start_server(greet, "127.0.0.1", 0))
        where = {"address": "127.0.0.1", "port": ssh.get_port(), "user": "ubuntu"}
        yield Server(
            HostConnection(host="gpu-01", host_key=public, **where),
            SshCredentials("test", private_key=private),
            api.sockets[0].getsockname()[1],
            lambda: run(drop()),
        )
        ssh.close()
        api.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as made:
        yield made


def test_a_command_reaches_the_api_and_its_exit_code_is_passed_on(
    server: Server, own_port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    command = (sys.executable, "-c", CLIENT, str(own_port))
    assert server.hold(*command, local_port=own_port) == 3
    assert f"https://127.0.0.1:{own_port} leads to gpu-01" in capfd.readouterr().err
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own_port))
    assert server.hold(sys.executable, "-c", "import os; os.kill(os.getpid(), 15)") == 143
    assert server.hold("no-such-command") == 127


def test_what_keeps_a_tunnel_from_opening_is_said(server: Server, closed_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BusyError, match="another program listens there"):
            server.hold("true", local_port=taken.getsockname()[1])
    with pytest.raises(AdapterError, match=r"nothing answers on 127.0.0.1:\d+ there"):
        server.hold("true", api=closed_port)
    with (
        served(closed=True) as closed,
        pytest.raises(AdapterError, match=r"allows no forwarding.*AllowTcpForwarding"),
    ):
        closed.hold("true")
    gone = replace(server, connection=server.connection.model_copy(update={"port": closed_port}))
    with pytest.raises(AdapterError, match="no SSH connection"):
        gone.hold("true")


def test_a_tunnel_without_a_command_stays_until_its_connection_is_lost() -> None:
    with (
        served() as lost,
        forward(lost.connection, lost.credentials, local_port=0, remote_port=lost.api) as opened,
    ):
        waiting = threading.Thread(target=opened.wait_until_lost)
        waiting.start()
        with socket.create_connection(("127.0.0.1", opened.port)) as one:
            assert one.recv(100) == HELLO
        assert waiting.is_alive()
        lost.drop()
        waiting.join(SECONDS)
        assert not waiting.is_alive()


def test_a_stack_of_another_type_has_no_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError, match="is no usernetes cluster"):
        tunnel.command(["true"], "dev")
