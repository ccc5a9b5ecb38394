"""Hosts that are reached through Google's Identity-Aware Proxy, with a gcloud of our own that relays."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from gpuclusters.core.errors import HostKeyMismatchError, UnreachableError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost

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
    key: asyncssh.SSHKey
    client: asyncssh.SSHKey

    def host(self, key: asyncssh.SSHKey | None = None, name: str = "gpu-1") -> SshHost:
        line = (key or self.key).export_public_key().decode()
        connection = HostConnection.model_validate(
            {
                "host": name,  # links are shared by connection
                "address": "10.10.0.2",
                "user": "ubuntu",
                "host_key": line,
                "iap": {"project": "my-project", "zone": "us-central1-a", "instance": "lab-gpu-1"},
            }
        )
        private = self.client.export_private_key().decode()
        return SshHost(connection, SshCredentials("test", private_key=private))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    key, client = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def answer(process: asyncssh.SSHServerProcess[str]) -> None:
        process.stdout.write("reached\n")
        process.exit(0)

    async def listen() -> asyncssh.SSHAcceptor:
        keys = asyncssh.import_authorized_keys(client.export_public_key().decode())
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[key],
            authorized_client_keys=keys,
            process_factory=answer,
        )

    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    yield Server(acceptor.get_port(), key, client)
    loop.call_soon_threadsafe(acceptor.close)
    asyncio.run_coroutine_threadsafe(acceptor.wait_closed(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Path:
    """A gcloud that relays to the server; gives the file with the arguments it got."""
    log = tmp_path / "arguments"
    _write(tmp_path, log, server.port)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return log


def _write(folder: Path, log: Path, port: int) -> None:
    program = folder / "gcloud"
    program.write_text(RELAY.format(python=sys.executable, log=str(log), port=port))
    program.chmod(0o755)


def test_a_command_reaches_the_machine_through_the_tunnel(gcloud: Path, server: Server) -> None:
    assert "reached" in str(server.host().run("true", tried="look"))
    assert gcloud.read_text().split("\n") == [
        "compute",
        "start-iap-tunnel",
        "lab-gpu-1",
        "22",
        "--listen-on-stdin",
        "--project=my-project",
        "--zone=us-central1-a",
        "--verbosity=error",
        "--quiet",
    ]


def test_the_host_key_is_verified_behind_the_tunnel_too(gcloud: Path, server: Server) -> None:
    with pytest.raises(HostKeyMismatchError):
        server.host(asyncssh.generate_private_key("ssh-ed25519")).run("true", tried="look")


def test_a_tunnel_that_is_not_allowed_names_the_role(
    gcloud: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuclusters.host.connect.CONNECT_PAUSE_SECONDS", 0)
    _write(gcloud.parent, gcloud, 0)
    with pytest.raises(UnreachableError, match="IAP-secured Tunnel User"):
        server.host(name="gpu-2").run("true", tried="look")


def test_without_gcloud_it_is_said_what_is_missing(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gpuclusters.host.connect.CONNECT_PAUSE_SECONDS", 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match="no gcloud here to open a tunnel"):
        server.host(name="gpu-3").run("true", tried="look")
