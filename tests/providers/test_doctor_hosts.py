"""`gpu-clusters doctor` on simulated machines: one connection each, all at once."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from gpuclusters.cli.diagnosis import Level
from gpuclusters.cli.doctor import Look, caas_host, machines
from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.fabric.table import Board
from gpuclusters.host import connect as ssh_connect
from gpuclusters.host.model import HostConnection
from gpuclusters.preflight.model import expects_of
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost

PRESET = PRESETS[Platform.SUPERMICRO_HGX_H100]
EXPECTS = expects_of(PRESET, Board(PRESET.gpus, PRESET.switches, PRESET.extra_functions))


def machine(
    there: SimulatedHost, fabric_manager: str | None = None, **changes: Any
) -> tuple[HostConnection, Look]:
    connection = HostConnection(**{**there.connection, **changes})
    return connection, caas_host(EXPECTS, fabric_manager)


@pytest.fixture(scope="module")
def shared(hosts_pool: Any) -> list[SimulatedHost]:
    made: list[SimulatedHost] = hosts_pool.add(3, "supermicro-hgx-h100")
    return made


@pytest.fixture
def three(shared: list[SimulatedHost]) -> Iterator[list[SimulatedHost]]:
    yield shared
    for host in shared:
        host.clear_faults()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one attempt for each machine, and the computer of these tests may be busy."""
    monkeypatch.setattr(ssh_connect, "CONNECT_TIMEOUT_SECONDS", 120.0)
    monkeypatch.setattr(ssh_connect, "LOGIN_TIMEOUT_SECONDS", 120.0)


def test_each_machine_says_what_is_wrong_with_it(three: list[SimulatedHost]) -> None:
    well, broken, strange = three
    broken.inject(faults.GpuFellOffTheBus(module=2), faults.OldVersion())
    strange.inject(faults.WrongHostKey())
    for host in three:
        host.forget()
    found = list(machines([machine(h) for h in three], well.client_key.read_text()))
    by_area = {d.area: [(x.level, x.id) for x in found if x.area == d.area] for d in found}
    assert by_area == {
        "credentials": [(Level.OK, "")],
        well.name: [(Level.OK, "")],
        broken.name: [
            (Level.FAILURE, "preflight.off-the-bus"),
            (Level.WARNING, "preflight.kernel-old"),
        ],
        strange.name: [(Level.FAILURE, "remote.host-key-mismatch")],
    }
    assert all(d.fix for d in found if d.level is not Level.OK)
    (fine,) = (d for d in found if d.area == well.name)
    assert fine.text.startswith("prepared: 8 GPUs, ")
    assert len(well.journal("connection")) == len(well.commands()) == 1


def test_two_names_of_one_machine_are_found_out(three: list[SimulatedHost]) -> None:
    host = three[0]
    twin = machine(host, host="hgx-twin")
    found = list(machines([machine(host), twin], host.client_key.read_text()))
    assert [(d.area, d.id) for d in found if d.level is Level.FAILURE] == [
        ("hgx-twin", "doctor.same-machine")
    ]


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (faults.FabricManager(state="down"), "preflight.fabric-unreachable"),
        (faults.FabricManager(state="restarting"), "preflight.fabric-initialising"),
        (faults.FabricManager(state="not-supported"), "preflight.fabric-mode"),
        (faults.FabricManager(state="version-mismatch"), "preflight.fabric-version"),
        (faults.PartitionUnsupported(module=3), "preflight.fabric-partitions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_fabric_manager_says_is_told_by_its_cause(
    three: list[SimulatedHost], fault: Any, name: str
) -> None:
    host = three[0]
    host.inject(fault)
    found = list(machines([machine(host, "127.0.0.1")], host.client_key.read_text()))
    assert [d.id for d in found if d.level is Level.FAILURE] == [name]


def test_without_a_key_no_machine_is_tried(
    three: list[SimulatedHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPU_CLUSTERS_SSH_KEY_FILE", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    (found,) = machines([machine(three[0])], None)
    assert (found.area, found.level) == ("credentials", Level.FAILURE)
    (found,) = machines([machine(three[0])], "not a key")
    assert "unencrypted OpenSSH or PEM private key" in found.text
    assert "not a key" not in found.text


def test_machines_that_are_silent_cost_one_attempt_each(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = hosts()
    monkeypatch.setattr(ssh_connect, "CONNECT_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(ssh_connect, "LOGIN_TIMEOUT_SECONDS", 0.2)
    with ExitStack() as stack:
        silent = [stack.enter_context(nobody_speaks()) for _ in range(5)]
        looks = [machine(host, host=f"silent-{n}", port=p) for n, (p, _) in enumerate(silent)]
        found = list(machines(looks, host.client_key.read_text()))
        assert [d.id for d in found[1:]] == ["remote.unreachable"] * 5
        assert [guests(server) for _, server in silent] == [1] * 5


@contextmanager
def nobody_speaks() -> Iterator[tuple[int, socket.socket]]:
    """A port that takes connections, as the kernel does without anybody accepting, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1], server


def guests(server: socket.socket) -> int:
    """How many have come until now: those who stand in the queue before one of our own."""
    with socket.create_connection(server.getsockname()) as last:
        before = 0
        while True:
            came, address = server.accept()
            came.close()
            if address == last.getsockname():
                return before
            before += 1
