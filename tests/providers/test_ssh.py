"""The SSH transport against a server of our own, for what simulated hosts cannot show."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncssh
import pytest

from gpuclusters.core.errors import (
    DeniedError,
    HostKeyMismatchError,
    InvalidAnswerError,
    UnreachableError,
)
from gpuclusters.host import ssh as ssh_forward
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import MAX_OUTPUT_BYTES, SshHost, pool
from tests.providers.ssh_server import listening

TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


@dataclass
class Server:
    port: int
    keys: dict[str, asyncssh.SSHKey]
    client: asyncssh.SSHKey
    commands: list[str]

    def host(self, key: asyncssh.SSHKey | None = None, **changes: Any) -> SshHost:
        shown = key or self.keys["ssh-ed25519"]
        line = shown.export_public_key().decode()
        given = {"host": "a", "address": "127.0.0.1", "port": self.port, "host_key": line}
        return SshHost(
            HostConnection.model_validate(given | changes),
            SshCredentials("test", private_key=self.client.export_private_key().decode()),
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with a host key of each type that answers a few commands."""
    keys = {kind: asyncssh.generate_private_key(kind) for kind in TYPES}
    client = asyncssh.generate_private_key("ssh-ed25519")
    commands: list[str] = []

    async def answer(process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = process.command or ""
        commands.append(command)
        if command.startswith("sudo -n "):
            command = command.removeprefix("sudo -n ")
        if command == "flood":
            for _ in range(2 * MAX_OUTPUT_BYTES // 65536):
                process.stdout.write(b"x" * 65536)
                await process.stdout.drain()
        elif command == "deaf":
            process.stderr.write(b"I read nothing\n")
            process.exit(3)
            return
        elif command == "echo":
            process.stdout.write(await process.stdin.read())
        process.exit(0)

    with listening(list(keys.values()), client, answer) as port:
        yield Server(port, keys, client, commands)


@pytest.mark.parametrize("kind", TYPES)
def test_a_host_with_several_keys_shows_the_pinned_one(server: Server, kind: str) -> None:
    done = server.host(server.keys[kind]).run(["echo"], tried="talk", stdin=b"hello")
    assert (done.status, done.stdout) == (0, b"hello")


@pytest.mark.parametrize("kind", TYPES)
def test_another_key_of_the_same_type_is_refused_with_both_fingerprints(
    server: Server, kind: str
) -> None:
    other = asyncssh.generate_private_key(kind)
    before = len(server.commands)
    with pytest.raises(HostKeyMismatchError) as failed:
        server.host(other).run(["echo"], tried="talk")
    message = str(failed.value)
    assert f"a (127.0.0.1:{server.port}): could not talk" in message
    assert other.get_fingerprint() in message
    assert server.keys[kind].get_fingerprint() in message
    assert len(server.commands) == before


def test_root_needs_no_sudo_and_everybody_else_does(server: Server) -> None:
    server.host(user="root").run(["echo"], tried="talk")
    server.host(user="operator").run(["echo"], tried="talk")
    assert server.commands[-2:] == ["echo", "sudo -n echo"]


def test_too_much_output_is_cut_and_refused_and_the_connection_stays(server: Server) -> None:
    host = server.host()
    with pytest.raises(InvalidAnswerError, match="more than 1048576 bytes"):
        host.run(["flood"], tried="read /dev/zero")
    assert host.run(["echo"], tried="talk", stdin=b"still there").stdout == b"still there"


def test_a_command_that_does_not_read_its_input_still_says_why(server: Server) -> None:
    done = server.host().run(["deaf"], tried="write", stdin=b"x" * 600_000)
    assert (done.status, done.stderr) == (3, "I read nothing\n")


def test_a_key_that_is_not_let_in_is_named_by_its_source(server: Server) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    host = SshHost(server.host().connection, SshCredentials("FILE", private_key=stranger))
    object.__setattr__(host, "connection", server.host(user="nobody").connection)
    with pytest.raises(DeniedError, match="user nobody is not let in with the key from FILE"):
        host.run(["echo"], tried="talk")


def test_where_nothing_listens_the_reason_is_short(server: Server) -> None:
    with pytest.raises(UnreachableError) as failed:
        server.host(port=1).run(["echo"], tried="talk")
    assert str(failed.value) == (
        "a (127.0.0.1:1): could not talk: no SSH connection (Connection refused); "
        "check that the host is up and that address, port and firewall are right"
    )


def test_a_tunnel_ends_though_those_in_it_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(asyncssh.SSHListener):
        closed = False

        def close(self) -> None:
            self.closed = True

        async def wait_closed(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(ssh_forward, "_CLOSE_SECONDS", 0.01)
    busy = Busy()
    pool().run(ssh_forward._close(busy))
    assert busy.closed


def test_an_address_that_is_no_address_is_unreachable(server: Server) -> None:
    with pytest.raises(UnreachableError, match="no SSH connection"):
        server.host(address="no-such-host.invalid").run(["echo"], tried="talk")
