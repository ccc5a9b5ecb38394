"""Seven machines, made by an `up` that is killed again and again; one is changed, all drift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lab.hosts import faults, injecting
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.drifting import by_hand, check, drift, told
from tests.e2e.killing import ENDS, Kill, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = (
    Kill("Rke2Node", "everything", seconds=1),  # the first server is at its installation
    Kill("Rke2Node", "engine", event=ENDS),  # others join
    Kill("Release", "everything", seconds=0.5, by_hand="gpu-operator/gpu-operator"),
    Kill("MigLayout", "engine"),
)
GPU = {"gpu": {"product": "a100-sxm4-80gb", "count": 8}}
SERVERS = ["cp-01", "cp-02", "cp-03"]
POOLS: list[dict[str, Any]] = [
    {"name": "whole", "nodes": ["gpu-01", "gpu-02"], **GPU},
    {"name": "sliced", "nodes": ["gpu-03"], **GPU, "mig": "all-3g.40gb"},
    {"name": "plain", "nodes": ["worker-01"]},
]
OFFERED: dict[str, dict[str, str]] = {
    **{name: {} for name in (*SERVERS, "worker-01")},
    **{name: {"nvidia.com/gpu": "8"} for name in ("gpu-01", "gpu-02")},
    "gpu-03": {"nvidia.com/gpu": "16"},
}


@pytest.fixture(scope="module")
def rke2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, which follow one another."""
    with checkout(tmp_path_factory.mktemp("killr"), "rke2") as dev:
        dev.configure("rke2", servers=SERVERS, pools=POOLS, registration_address="127.0.0.1")
        met = up_through_kills(dev, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield dev


def test_a_killed_up_of_three_servers_and_four_agents_converges(rke2: Checkout) -> None:
    assert rke2.plan("--refresh") == []
    urns = [resource["urn"] for resource in rke2.state()]
    assert len(set(urns)) == len(urns)
    assert rke2.gpus() == OFFERED
    rke2.unharmed(*OFFERED)


def test_another_layout_of_one_pool_leaves_the_others_alone(rke2: Checkout) -> None:
    whole, sliced, plain = POOLS
    rke2.configure("rke2", pools=[whole, {**sliced, "mig": "all-2g.20gb"}, plain])
    assert rke2.plan() == [
        "update GpuReadiness gpus-gate",
        "update MigLayout gpu-03-mig",
        "update ProofRun proof",
    ]
    rke2.up()
    assert rke2.gpus() == {**OFFERED, "gpu-03": {"nvidia.com/gpu": "24"}}


def test_drift_of_an_rke2_cluster_is_found_and_a_machine_that_is_away_hides_nothing(
    rke2: Checkout,
) -> None:
    wanted = by_hand(rke2, "of rke2")
    # As after somebody unloaded the module and loaded another.
    (version,) = (rke2.lab / "hosts" / "gpu-02").rglob("proc/driver/nvidia/version")
    version.write_text(version.read_text().replace("580.178.04", "570.86.15"))
    with rke2.api() as api:
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}})
    injecting.inject(rke2.lab / "hosts", "cp-01", faults.RefuseConnections())
    code, report = drift(rke2)
    assert code == 2, json.dumps(report, indent=1)
    assert any("cp-01" in one["what"] for one in report["not_looked_at"])
    wanted |= {
        ("driver.loaded-other", "gpu-02", "gpu-02-driver"),
        ("node.unknown", "stranger", "stranger"),
        ("host.unreachable", "cp-01", "cp-01"),
    }
    waiting = {
        "node-missing", "not-allocatable", "not-discovered", "not-validated", "policy-not-ready", "rollout",
    }  # fmt: skip
    also = {
        "node.allocatable-lower",
        "stack.resource-changed",
        "gpu-operator.not-ready",
        "host.reboot-pending",
    }
    check(report, wanted, also | {f"gpu.{one}" for one in waiting})
    assert ("node.allocatable-lower", "gpu-03") in {one[:2] for one in told(report)}
    assert report["up_would"], "what up would do is known for what was reached"
