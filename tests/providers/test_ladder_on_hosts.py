"""Rungs 1 to 4 on a simulated host over real SSH: they hold where it was prepared, and faults fail them."""

from typing import Any

import pytest

from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts
from gpuclusters.proof.checks import Check, CheckLevel, Outcome
from lab.hosts.faults import CdiInvisible, EngineIsRootful, NvmlLost
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.usernetes_kit import ACCOUNT, GPUS, Cluster, prepare


@pytest.fixture(scope="module")
def standing(hosts_pool: Any, shared_processes: StartProvider) -> SimulatedHost:
    """A control plane on a host of its own, which all tests share."""
    host: SimulatedHost = hosts_pool.add(1, "plain-gpu-v100")[0]
    prepare(host)
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key)}
    Cluster([host], shared_processes(key)).create(host)
    return host


@pytest.fixture
def node(standing: SimulatedHost) -> SimulatedHost:
    standing.clear_faults()
    return standing


def climb(host: SimulatedHost, highest: CheckLevel = CheckLevel.NODE_CDI) -> list[Check]:
    said = hosts.ask(host.ssh, ACCOUNT, highest)
    return hosts.judge(host.name, GPUS, said, highest)


def test_a_prepared_host_holds_all_four(node: SimulatedHost) -> None:
    checks = climb(node)
    assert proof.proven(checks), proof.faults(checks)
    assert [check.level for check in checks] == ["R1", "R2", "R3", "R4"]
    assert checks[-1].figures == {"names": GPUS + 1}
    assert [check.level for check in climb(node, CheckLevel.DOCKER)] == ["R1", "R2"]


@pytest.mark.parametrize(
    ("fault", "rung", "said"),
    [
        (EngineIsRootful(), "R2", "runs as root"),
        (CdiInvisible(), "R2", "neither the runtime nvidia nor a CDI device"),
        (NvmlLost(), "R3", "daemon-reload"),
    ],
)
def test_a_fault_of_the_host_fails_its_rung(
    node: SimulatedHost, fault: Any, rung: str, said: str
) -> None:
    node.inject(fault)
    (*_, last) = climb(node)
    assert (last.level, last.outcome) == (rung, Outcome.FAILED)
    assert said in last.said


def test_a_node_that_does_not_run_fails_the_fourth(node: SimulatedHost) -> None:
    done = node.run(
        "DOCKER_HOST=unix:///run/user/1000/docker.sock docker rm --force usernetes-node"
    )
    assert done.returncode == 0, done.stderr
    (*_, last) = climb(node)
    assert (last.level, last.outcome) == ("R4", Outcome.FAILED)
    assert "the node does not run: run `up` again" in last.said
