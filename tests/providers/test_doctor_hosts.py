"""`gpu-clusters doctor` on simulated machines: one connection each, all at once."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.cli.doctor import Look, caas_host, machines, rke2_host, usernetes_host
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.host import connect as ssh_connect
from gpuclusters.host.model import HostConnection
from lab.hosts import faults
from lab.hosts.model import USER
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.test_preflight_of_hosts import EXPECTS
from tests.unit.config.documents import base

CAAS = caas_host(EXPECTS, None)


def section(kind: ClusterType, **changes: Any) -> Any:
    document = base(kind)
    document[kind.value] |= changes
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), parsed
    return parsed.section


RKE2 = section(ClusterType.RKE2)
USERNETES = usernetes_host(section(ClusterType.USERNETES, account=USER))


def found(*hosts: SimulatedHost, look: Look = CAAS, **changes: Any) -> list[Diagnosis]:
    """What is said of machines, the last one declared with these changes, but for the credentials."""
    told = [h.connection for h in hosts]
    told[-1] |= changes
    looks = [(HostConnection(**one), look) for one in told]
    said = list(machines(looks, hosts[0].client_key.read_text()))
    assert (said[0].area, said[0].level) == ("credentials", Level.OK)
    assert all(one.fix for one in said if one.level is not Level.OK)
    return said[1:]


@pytest.fixture(scope="module")
def shared(hosts_pool: Any) -> dict[str, list[SimulatedHost]]:
    return {
        "caas": hosts_pool.add(3, "supermicro-hgx-h100"),
        "rke2": hosts_pool.add(1, "plain-gpu-a100", condition="bare"),
        "usernetes": hosts_pool.add(1, "plain-gpu-v100", condition="prepared"),
        "bare": hosts_pool.add(1, "plain-gpu-v100", condition="bare"),
    }


@pytest.fixture
def there(shared: dict[str, list[SimulatedHost]]) -> Iterator[dict[str, list[SimulatedHost]]]:
    yield shared
    for hosts in shared.values():
        for host in hosts:
            host.clear_faults()


@pytest.fixture
def three(there: dict[str, list[SimulatedHost]]) -> list[SimulatedHost]:
    return there["caas"]


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
    said = found(*three)
    by_area = {d.area: [(x.level, x.id) for x in said if x.area == d.area] for d in said}
    assert by_area == {
        well.name: [(Level.OK, "")],
        broken.name: [
            (Level.FAILURE, "preflight.off-the-bus"),
            (Level.WARNING, "preflight.kernel-old"),
        ],
        strange.name: [(Level.FAILURE, "remote.host-key-mismatch")],
    }
    (fine,) = (d for d in said if d.area == well.name)
    assert fine.text.startswith("prepared: 8 GPUs, ")
    assert len(well.journal("connection")) == len(well.commands()) == 1


def test_two_names_of_one_machine_are_found_out(three: list[SimulatedHost]) -> None:
    said = found(three[0], three[0], host="hgx-twin")
    assert [(d.area, d.id) for d in said if d.level is Level.FAILURE] == [
        ("hgx-twin", "doctor.same-machine")
    ]


@pytest.mark.parametrize(
    ("state", "name"), [("down", "fabric-unreachable"), ("restarting", "fabric-initialising")]
)
def test_what_the_fabric_manager_says_is_told_by_its_cause(
    three: list[SimulatedHost], state: str, name: str
) -> None:
    three[0].inject(faults.FabricManager(state=state))
    said = found(three[0], look=caas_host(EXPECTS, "127.0.0.1"))
    assert [d.id for d in said if d.level is Level.FAILURE] == [f"preflight.{name}"]


def test_without_a_key_no_machine_is_tried(
    three: list[SimulatedHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPU_CLUSTERS_SSH_KEY_FILE", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    looks = [(HostConnection(**three[0].connection), CAAS)]
    (said,) = machines(looks, None)
    assert (said.area, said.level) == ("credentials", Level.FAILURE)
    (said,) = machines(looks, "not a key")
    assert "unencrypted OpenSSH or PEM private key" in said.text
    assert "not a key" not in said.text


@pytest.mark.parametrize("row", beside(__file__, "doctor_hosts.yaml"), ids=str)
def test_what_is_said_of_a_machine_of_another_type(
    there: dict[str, list[SimulatedHost]], row: dict[str, Any]
) -> None:
    (host,) = there[row["machine"]]
    host.inject(*(faults.parse(kind, values) for kind, values in row.get("faults", {}).items()))
    said = found(host, look=rke2_host(RKE2, row["rke2"]) if "rke2" in row else USERNETES)
    assert sorted([one.level.value, one.id or one.text] for one in said) == sorted(row["said"])


def test_machines_that_are_silent_cost_one_attempt_each(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = hosts()
    monkeypatch.setattr(ssh_connect, "CONNECT_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(ssh_connect, "LOGIN_TIMEOUT_SECONDS", 0.2)
    # The kernel takes connections without anybody accepting them; nobody ever says a word.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = host.connection | {"port": silent.getsockname()[1]}
        looks = [(HostConnection(**there | {"host": f"silent-{n}"}), CAAS) for n in range(5)]
        said = list(machines(looks, host.client_key.read_text()))
        assert [d.id for d in said[1:]] == ["remote.unreachable"] * 5
        silent.setblocking(False)
        for _ in range(5):
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
