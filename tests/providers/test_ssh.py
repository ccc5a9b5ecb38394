"""The SSH transport against a server of our own, for what simulated hosts cannot show: directly, and through
Google's Identity-Aware Proxy with a gcloud that relays."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
IAP = {"project": "my-project", "zone": "us-central1-a", "instance": "lab-gpu-1"}
RELAY = """#!{python}
import os, socket, sys, threading
open({log!r}, "w").write("\\n".join(sys.argv[1:]))
if {port} == 0:
    sys.exit("ERROR: (gcloud.compute.start-iap-tunnel) 4033: 'not authorized'")
far = socket.create_connection(("127.0.0.1", {port}))
def up():
    while data := os.read(0, 65536):
        far.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := far.recv(65536):
    os.write(1, data)
"""


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


async def answer(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """A few commands."""
    command = (process.command or "").removeprefix("sudo -n ")
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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with a host key of each type, in a loop of its own."""
    keys = {kind: asyncssh.generate_private_key(kind) for kind in TYPES}
    client = asyncssh.generate_private_key("ssh-ed25519")
    commands: list[str] = []

    async def noted(process: asyncssh.SSHServerProcess[bytes]) -> None:
        commands.append(process.command or "")
        await answer(process)

    async def listen() -> asyncssh.SSHAcceptor:
        lets_in = asyncssh.import_authorized_keys(client.export_public_key().decode())
        return await asyncssh.listen(
            *("127.0.0.1", 0),
            server_host_keys=list(keys.values()),
            authorized_client_keys=lets_in,
            process_factory=noted,
            encoding=None,
        )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    yield Server(acceptor.get_port(), keys, client, commands)
    loop.call_soon_threadsafe(acceptor.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("kind", TYPES)
def test_a_host_with_several_keys_shows_the_pinned_one_and_another_is_refused_with_both(
    server: Server, kind: str
) -> None:
    done = server.host(server.keys[kind]).run(["echo"], tried="talk", stdin=b"hello")
    assert (done.status, done.stdout) == (0, b"hello")
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
    connection = server.host(user="nobody").connection
    host = SshHost(connection, SshCredentials("FILE", private_key=stranger))
    with pytest.raises(DeniedError, match="user nobody is not let in with the key from FILE"):
        host.run(["echo"], tried="talk")


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


def gcloud(folder: Path, port: int) -> Path:
    """One that relays to this port; gives the file with the arguments it got."""
    program, log = folder / "gcloud", folder / "arguments"
    program.write_text(RELAY.format(python=sys.executable, log=str(log), port=port))
    program.chmod(0o755)
    return log


def test_a_command_reaches_the_machine_through_the_tunnel_and_its_key_is_verified_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    log = gcloud(tmp_path, server.port)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    inside = {"address": "10.10.0.2", "port": 22, "iap": IAP}
    reached = server.host(**inside).run(["echo"], tried="look", stdin=b"reached")
    assert reached.stdout == b"reached"
    assert log.read_text().split("\n") == [
        *("compute", "start-iap-tunnel", "lab-gpu-1", "22", "--listen-on-stdin"),
        *("--project=my-project", "--zone=us-central1-a", "--verbosity=error", "--quiet"),
    ]
    with pytest.raises(HostKeyMismatchError):
        server.host(asyncssh.generate_private_key("ssh-ed25519"), **inside).run(
            "true", tried="look"
        )


@pytest.mark.parametrize(
    ("there", "said"),
    [(True, "IAP-secured Tunnel User"), (False, "no gcloud here to open a tunnel")],
    ids=["not allowed", "no gcloud"],
)
def test_a_tunnel_that_cannot_be_opened_names_what_is_missing(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool, said: str
) -> None:
    monkeypatch.setattr("gpuclusters.host.connect.CONNECT_PAUSE_SECONDS", 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    if there:
        gcloud(tmp_path, 0)
    # Links are shared by connection: another name is another one.
    host = server.host(host=f"gpu-{there}", address="10.10.0.2", port=22, iap=IAP)
    with pytest.raises(UnreachableError, match=said):
        host.run("true", tried="look")
