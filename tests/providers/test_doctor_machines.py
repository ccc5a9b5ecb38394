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


def section(kind: ClusterType, **changes: Any) -> Any:
    document = base(kind)
    document[kind.value] |= changes
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), parsed
    return parsed.section


def rke2(name: str = "g1", **changes: Any) -> Look:
    config = section(ClusterType.RKE2, **changes)
    assert isinstance(config, Rke2Config)
    return rke2_host(config, name)


def usernetes(**changes: Any) -> Look:
    config = section(ClusterType.USERNETES, account=USER, **changes)
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


def test_a_bare_machine_of_rke2_is_well(a100: SimulatedHost) -> None:
    assert said(a100, rke2("s1")) == [(Level.OK, "bare, can be prepared")]


def test_a_bare_machine_with_gpus_says_what_up_puts_right_about_their_driver(
    a100: SimulatedHost,
) -> None:
    assert said(a100, rke2("g1")) == [(Level.WARNING, "driver.nouveau")]


def test_faults_of_a_machine_of_rke2_are_told_by_their_codes(a100: SimulatedHost) -> None:
    a100.inject(faults.PortTaken(port=9345), faults.GpuMissing(module=1))
    try:
        assert said(a100, rke2("s1")) == [(Level.FAILURE, "rke2.port-in-use")]
        assert said(a100, rke2("g1")) == [
            (Level.FAILURE, "driver.gpu-count"),
            (Level.WARNING, "driver.nouveau"),
        ]
    finally:
        a100.clear_faults()


def test_a_machine_of_usernetes_that_can_be_prepared_is_well(v100: SimulatedHost) -> None:
    fine = [(Level.OK, "driver 580.178.04, 4 GPUs, can be prepared")]
    assert said(v100, usernetes()) == fine


def test_faults_of_a_machine_of_usernetes_are_told_by_their_codes(v100: SimulatedHost) -> None:
    v100.inject(faults.OpenKernelModule(), faults.PortTaken(port=6443))
    try:
        found = said(v100, usernetes())
    finally:
        v100.clear_faults()
    assert sorted(found) == [
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
