"""Hosts that are reached through Google's Identity-Aware Proxy, with a gcloud of our own that relays."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from gpuclusters.core.errors import HostKeyMismatchError, UnreachableError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from tests.providers.ssh_server import listening

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

    def answer(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"reached\n")
        process.exit(0)

    with listening([key], client, answer) as port:
        yield Server(port, key, client)


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
        _write(tmp_path, tmp_path / "arguments", 0)
    with pytest.raises(UnreachableError, match=said):
        server.host(name=f"gpu-{there}").run("true", tried="look")
