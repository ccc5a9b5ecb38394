"""A simulated host stands where `machine.json` says; a bare network namespace stands for the node here."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import pytest

import lab.hosts
from lab.files import write_json
from lab.hosts import control, faults, injecting, journal
from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostEndpoint, HostSpec
from tests.fixtures.waiting import eventually
from tests.lab.nodes.own_network import OwnNetwork, has_interface, own_network
from tests.lab.nodes.real_lab import only_where_possible

pytestmark = [pytest.mark.lab, pytest.mark.real_node, only_where_possible]

NAME = "hgx-01"
ADDRESS, BMC = "198.51.100.10", "198.51.100.20"
SPECS = [HostSpec(NAME)]


@dataclass
class Holder:
    """Answers for the node as the process of `lab.nodes` does; what it was asked is kept."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    act: Callable[[str, str], int | None] = lambda program, action: None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        asked = (request["program"], request["action"])
        if request["action"] != "state":
            self.asked.append(asked)
        try:
            pid = self.act(*asked)
        except ValueError as error:
            return {"error": str(error)}
        return {"pid": pid, "wanted": pid is not None, "words": ""}


@dataclass
class Machine:
    """One host, its node's network, and that of its management controller."""

    folder: Path
    nodes: Path
    networks: ExitStack
    host: OwnNetwork
    bmc: OwnNetwork
    holder: Holder

    @property
    def endpoint(self) -> HostEndpoint:
        return lab.hosts.status(self.folder).hosts[NAME]

    @property
    def key(self) -> Path:
        return self.folder.parent / "ssh" / "id_ed25519"

    def announce(self, *, tell: bool = True) -> None:
        """What the holder of nodes writes when a node's network is there."""
        write_json(
            HostsFolder(self.folder).host(NAME).machine,
            {
                "pid": self.host.pid,
                "address": ADDRESS,
                "nodes": str(self.nodes),
                "bmc": {"pid": self.bmc.pid, "address": BMC},
            },
        )
        if tell:
            control.tell(HostsFolder(self.folder), "machines")

    def withdraw(self) -> None:
        """And when it goes."""
        HostsFolder(self.folder).host(NAME).machine.unlink(missing_ok=True)
        control.tell(HostsFolder(self.folder), "machines")

    def renew(self) -> None:
        """A node's network is another after each start of the node."""
        old = self.host
        old.end()
        eventually(lambda: not has_interface(old.interface), "the old network is gone")
        self.host = network(self.networks, ADDRESS)

    def run(self, command: str) -> tuple[int | None, str]:
        """Over SSH, from the node's network."""
        return self.host.run(self.endpoint, self.key, command)

    def on_loopback(self, command: str) -> tuple[int | None, str]:
        """Over SSH, from the machine's network."""
        endpoint = self.endpoint

        async def act() -> tuple[int | None, str]:
            async with asyncssh.connect(
                endpoint.address, endpoint.port, username=endpoint.user, client_keys=[str(self.key)],
                known_hosts=asyncssh.import_known_hosts(endpoint.known_host), config=None,
            ) as ssh:  # fmt: skip
                done = await ssh.run(command)
                return done.exit_status, f"{done.stdout}{done.stderr}"

        return asyncio.run(act())

    def redfish(self) -> str:
        """The first line of what the management controller answers in its network."""
        endpoint = self.endpoint
        context = ssl.create_default_context(cadata=endpoint.bmc.certificate)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        assert endpoint.bmc.url == f"https://{BMC}:443"
        with (
            self.bmc.connect(BMC, 443) as plain,
            context.wrap_socket(plain) as connection,
        ):
            connection.sendall(b"GET /redfish/v1 HTTP/1.1\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).decode().splitlines()[0]


def network(stack: ExitStack, address: str) -> OwnNetwork:
    # Named as a lab's, so that tests beside that compare this machine's own interfaces leave it out.
    return stack.enter_context(own_network(f"gclt{secrets.token_hex(4)}", [address]))


@contextmanager
def held(nodes: Path) -> Iterator[Holder]:
    holder = Holder()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            answer = holder.answer(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    nodes.mkdir()
    with socketserver.ThreadingUnixStreamServer(str(nodes / "control"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield holder
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("real") / "hosts"
    lab.hosts.start(folder, SPECS)
    yield folder
    lab.hosts.stop(folder)


@pytest.fixture
def machine(served: Path, tmp_path: Path) -> Iterator[Machine]:
    injecting.clear(served, NAME)
    lab.hosts.start(served, SPECS)
    journal.clear(served, NAME)
    with ExitStack() as stack:
        holder = stack.enter_context(held(tmp_path / "nodes"))
        host, bmc = network(stack, ADDRESS), network(stack, BMC)
        made = Machine(served, tmp_path / "nodes", stack, host, bmc, holder)
        yield made
        made.withdraw()
    eventually(lambda: not has_interface(bmc.interface), "nothing holds the network")


def test_a_network_whose_processes_were_killed_is_let_go_without_being_told(
    machine: Machine,
) -> None:
    before = machine.endpoint
    machine.announce()
    assert machine.run("true") == (0, "")
    machine.host.end()
    machine.bmc.end()
    for gone in (machine.host, machine.bmc):
        eventually(lambda gone=gone: not has_interface(gone.interface), "the network is gone")
    eventually(lambda: machine.endpoint == before, "the host is on loopback")
    assert machine.on_loopback("true") == (0, "")


def test_a_process_number_that_is_not_the_nodes_any_more_misleads_nobody(machine: Machine) -> None:
    before = machine.endpoint
    path = HostsFolder(machine.folder).host(NAME).machine
    machine.announce(tell=False)
    # This process is in the machine's network, which has not the node's address.
    write_json(path, {**json.loads(path.read_text()), "pid": os.getpid()})
    with pytest.raises(lab.hosts.HostsError, match="cannot be listened on"):
        control.tell(HostsFolder(machine.folder), "machines")
    assert machine.endpoint == before
    assert machine.on_loopback("true") == (0, "")


def test_a_server_that_starts_finds_the_node(machine: Machine) -> None:
    before = machine.endpoint
    machine.announce()
    lab.hosts.stop(machine.folder)
    assert lab.hosts.start(machine.folder, SPECS)[NAME].address == ADDRESS
    assert machine.run("true") == (0, "")
    machine.withdraw()
    assert machine.endpoint == before


def test_faults_of_connections_are_met_in_the_nodes_network_too(machine: Machine) -> None:
    machine.announce()
    injecting.inject(machine.folder, NAME, faults.RefuseConnections())
    with pytest.raises(ConnectionRefusedError):
        machine.run("true")
    injecting.clear(machine.folder, NAME)
    injecting.inject(machine.folder, NAME, faults.WrongHostKey())
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        machine.run("true")
    injecting.clear(machine.folder, NAME)
    injecting.inject(machine.folder, NAME, faults.DropConnectionAfter(bytes=3000))
    with pytest.raises((asyncssh.Error, OSError)):
        machine.run("head -c 100000 /dev/zero")
    injecting.clear(machine.folder, NAME)
    assert machine.run("true") == (0, "")
    assert journal.commands(machine.folder, NAME)[-1] == "true"


def reboot(machine: Machine) -> None:
    """The connection may break before the answer comes."""
    with suppress(OSError, asyncssh.Error):
        machine.run("sudo -n systemctl reboot")


def test_a_host_whose_node_nobody_holds_any_more_comes_back_alone(machine: Machine) -> None:
    def act(program: str, action: str) -> int | None:
        HostsFolder(machine.folder).host(NAME).machine.unlink(missing_ok=True)
        raise ValueError("nobody holds it")

    machine.holder.act = act
    machine.announce()
    reboot(machine)
    eventually(lambda: machine.endpoint.address == "127.0.0.1", "the host is on loopback")
    assert machine.on_loopback("systemctl is-active kubelet") == (0, "active\n")
    failures = [e["failed"] for e in journal.read(machine.folder, NAME, "power") if "failed" in e]
    assert failures == ["nobody holds it", "nobody holds it"]


def test_another_operating_system_is_installed_on_a_node_that_forgets_too(machine: Machine) -> None:
    machine.holder.act = lambda program, action: 7
    machine.announce()
    before = machine.endpoint
    endpoint = lab.hosts.reinstall(machine.folder, NAME)
    assert (endpoint.address, endpoint.port) == (ADDRESS, 22)
    assert endpoint.host_key != before.host_key
    asked = [("machine", "stop"), ("machine", "forget"), ("machine", "start")]
    assert machine.holder.asked == asked
    assert machine.run("true") == (0, "")
