"""`gpu-clusters doctor` on simulated machines of RKE2 and of usernetes: well, and with faults."""

from typing import Any

import pytest

from gpuclusters.cli.diagnosis import Level
from gpuclusters.cli.doctor import Look, machines, rke2_host, usernetes_host
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.host.model import HostConnection
from lab.hosts import faults
from lab.hosts.model import USER
from tests.fixtures.hosts import SimulatedHost
from tests.unit.config.documents import base

RKE2_FAULTS = (faults.PortTaken(port=9345), faults.GpuMissing(module=1))


def section(kind: ClusterType, **changes: Any) -> Any:
    document = base(kind)
    document[kind.value] |= changes
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), parsed
    return parsed.section


def rke2(name: str) -> Look:
    config = section(ClusterType.RKE2)
    assert isinstance(config, Rke2Config)
    return rke2_host(config, name)


def usernetes() -> Look:
    config = section(ClusterType.USERNETES, account=USER)
    assert isinstance(config, UsernetesConfig)
    return usernetes_host(config)


def said(host: SimulatedHost, look: Look) -> list[tuple[Level, str]]:
    """Level and code of what is said of a machine."""
    found = list(machines([(HostConnection(**host.connection), look)], host.client_key.read_text()))
    assert found[0].area == "credentials"
    assert all(one.area == host.name for one in found[1:])
    assert all(one.fix for one in found if one.level is not Level.OK)
    return [(one.level, one.id or one.text) for one in found[1:]]


@pytest.fixture(scope="module")
def a100(hosts_pool: Any) -> SimulatedHost:
    (host,) = hosts_pool.add(1, "plain-gpu-a100", condition="bare")
    return host


@pytest.fixture(scope="module")
def v100(hosts_pool: Any) -> SimulatedHost:
    (host,) = hosts_pool.add(1, "plain-gpu-v100", condition="prepared")
    return host


@pytest.mark.parametrize(
    ("name", "injected", "found"),
    [
        ("s1", (), [(Level.OK, "bare, can be prepared")]),
        ("g1", (), [(Level.WARNING, "driver.nouveau")]),
        ("s1", RKE2_FAULTS, [(Level.FAILURE, "rke2.port-in-use")]),
        (
            "g1",
            RKE2_FAULTS,
            [(Level.FAILURE, "driver.gpu-count"), (Level.WARNING, "driver.nouveau")],
        ),
    ],
    ids=["server", "with GPUs", "server with faults", "GPUs with faults"],
)
def test_what_is_said_of_a_bare_machine_of_rke2(
    a100: SimulatedHost, name: str, injected: tuple[Any, ...], found: list[tuple[Level, str]]
) -> None:
    a100.inject(*injected)
    try:
        assert said(a100, rke2(name)) == found
    finally:
        a100.clear_faults()


def test_what_is_said_of_a_machine_of_usernetes(v100: SimulatedHost) -> None:
    fine = [(Level.OK, "driver 580.178.04, 4 GPUs, can be prepared")]
    assert said(v100, usernetes()) == fine
    v100.inject(faults.OpenKernelModule(), faults.PortTaken(port=6443))
    assert sorted(said(v100, usernetes())) == [
        (Level.FAILURE, "driver.modules-unfit"),
        (Level.FAILURE, "rootless.port-taken"),
    ]


def test_a_machine_of_usernetes_that_shows_another_key_is_not_looked_at(
    hosts_pool: Any,
) -> None:
    (host,) = hosts_pool.add(1, "plain-gpu-v100", condition="bare")
    host.inject(faults.WrongHostKey())
    assert said(host, usernetes()) == [(Level.FAILURE, "remote.host-key-mismatch")]
    host.clear_faults()
    assert said(host, usernetes()) == [(Level.OK, "no driver yet, can be prepared")]
