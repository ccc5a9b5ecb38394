"""Seven machines, made by an `up` that is killed at every kind of its steps; one is changed, all drift."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import faults, injecting, journal
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.drifting_labs import check, drift, told
from tests.e2e.killing import ENDS, Kill, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

RKE2_CONFIG = "/etc/rancher/rke2/config.yaml.d/50-gpu-clusters.yaml"
KILLS = (
    Kill("Rke2Node", "everything", seconds=1),  # the first server is at its installation
    Kill("GpuDriver", "engine"),
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
OFFERED = {
    **dict.fromkeys([*SERVERS, "worker-01"]),
    **{"gpu-01": "8", "gpu-02": "8", "gpu-03": "16"},
}
"""GPUs of each node."""


@pytest.fixture(scope="module")
def rke2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here."""
    with checkout(tmp_path_factory.mktemp("killr")) as dev:
        dev.only("rke2")
        dev.configure("rke2", servers=SERVERS, pools=POOLS, registration_address="127.0.0.1")
        met = up_through_kills(dev, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield dev


def offered(rke2: Checkout) -> dict[str, str | None]:
    return {
        node["metadata"]["name"]: node["status"]["allocatable"].get("nvidia.com/gpu")
        for node in rke2.kubectl("get", "nodes")["items"]
    }


def test_a_killed_up_of_three_servers_and_four_agents_converges(rke2: Checkout) -> None:
    assert rke2.plan("--refresh") == []
    resources = rke2.state()
    assert [urn for urn, n in Counter(r["urn"] for r in resources).items() if n > 1] == []
    assert offered(rke2) == OFFERED
    for name in OFFERED:
        assert journal.read(rke2.lab / "hosts", name, "harm") == []


def changes(steps: list[dict[str, Any]]) -> list[str]:
    """`update MigLayout gpu-03-mig`, one for each step, sorted."""
    return sorted(
        f"{step['op']} {step['urn'].split('::')[2].split(':')[-1]} {step['urn'].split('::')[-1]}"
        for step in steps
    )


def test_another_layout_of_one_pool_leaves_the_others_alone(rke2: Checkout) -> None:
    whole, sliced, plain = POOLS
    rke2.configure("rke2", pools=[whole, {**sliced, "mig": "all-2g.20gb"}, plain])
    assert changes(rke2.plan()) == [
        "update GpuReadiness gpus-gate",
        "update MigLayout gpu-03-mig",
        "update ProofRun proof",
    ]
    rke2.up()
    assert offered(rke2) == {**OFFERED, "gpu-03": "24"}


def test_a_clean_rke2_cluster_has_no_drift(rke2: Checkout) -> None:
    code, report = drift(rke2)
    found = (code, report["findings"], report["not_looked_at"])
    assert found == (0, [], []), json.dumps(report, indent=1)


def test_drift_of_an_rke2_cluster_is_found_and_a_machine_that_is_away_hides_nothing(
    rke2: Checkout, tmp_path: Path
) -> None:
    rke2.on_host("gpu-01", f"sudo -n sh -c 'echo debug: true >> {RKE2_CONFIG}'")
    # As after somebody unloaded the module and loaded another.
    (version,) = (rke2.lab / "hosts" / "gpu-02").rglob("proc/driver/nvidia/version")
    version.write_text(version.read_text().replace("580.178.04", "570.86.15"))
    rke2.kubectl_text(
        "label", "node", "gpu-03", "nvidia.com/mig.config=all-disabled", "--overwrite"
    )
    rke2.kubectl_text("taint", "node", "cp-01", "CriticalAddonsOnly-")
    rke2.kubectl_text("delete", "node", "gpu-01")
    rke2.kubectl_text("-n", "gpu-operator", "set", "env", "deploy/gpu-operator", "EXTRA=1")
    stranger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(stranger))
    rke2.kubectl_text("create", "-f", str(file))
    injecting.inject(rke2.lab / "hosts", "cp-01", faults.RefuseConnections())
    code, report = drift(rke2)
    assert code == 2, json.dumps(report, indent=1)
    assert any("cp-01" in one["what"] for one in report["not_looked_at"])
    wanted = {
        ("rke2.file-changed", "gpu-01", RKE2_CONFIG),
        ("driver.loaded-other", "gpu-02", "gpu-02-driver"),
        ("mig.layout-changed", "gpu-03", "MIG layout"),
        ("node.taint-missing", "cp-01", "CriticalAddonsOnly"),
        ("node.missing", "gpu-01", "gpu-01"),
        ("node.unknown", "stranger", "stranger"),
        ("helm.object-changed", "gpu-operator/gpu-operator", "Deployment gpu-operator"),
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
