"""One lab and one stack through three types: caas on a cluster that it makes itself, usernetes, and rke2.

The `up` that makes the rke2 cluster is killed again and again; then a layout is changed, and all drifts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import faults, injecting
from lab.hosts.rke2 import rke2_release
from lab.usernetes import faults as in_node
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.drifting import by_hand, check, drift, told
from tests.e2e.killing import Kill, up_through_kills
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

VERSION = "v1.35.7+rke2r1"
KUBERNETES = {
    "source": "rke2",
    "version": VERSION,
    "artifacts": {"source": "download", "checksum": rke2_release.checksum(VERSION)},
    "servers": [{"name": "cp-00"}],
    "cis-profile": True,
}
AS_OWNER = "sudo -n -H -u ubuntu"
FOUR = {"nvidia.com/gpu": "4"}
WORKERS = [{"host": "u7s-02", "number": 2}, {"host": "u7s-03", "number": 3}]
TRAINING = {
    "rung": 9,
    "training": {"image": f"lab.example.com/pytorch@sha256:{'0' * 64}", "cuda": "12.6"},
}
KILLS = (
    Kill("Rke2Node", "everything", seconds=1),  # the first server is at its installation
    Kill("MigLayout", "engine"),
)
SERVERS = ("cp-01", "cp-02", "cp-03")
GPU = {"gpu": {"product": "a100-sxm4-80gb", "count": 8}}
WHOLE: dict[str, Any] = {"name": "whole", "nodes": ["gpu-01"], **GPU}
SLICED: dict[str, Any] = {"name": "sliced", "nodes": ["gpu-02"], **GPU, "mig": "all-3g.40gb"}
PLAIN: dict[str, Any] = {"name": "plain", "nodes": ["worker-01"]}
OFFERED: dict[str, dict[str, str]] = {
    **{name: {} for name in (*SERVERS, "worker-01")},
    "gpu-01": {"nvidia.com/gpu": "8"},
    "gpu-02": {"nvidia.com/gpu": "16"},
}


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The tests follow one another."""
    with checkout(tmp_path_factory.mktemp("types"), "caas", "usernetes", "rke2") as made:
        made.configure(
            kubernetes=KUBERNETES,
            nodes=[{"name": "hgx-01"}],
            tenants=[{"name": "acme", "gpus": 4}],
            proof=None,
        )
        made.configure(
            "rke2",
            servers=list(SERVERS),
            pools=[WHOLE, SLICED, PLAIN],
            registration_address="127.0.0.1",
        )
        # The third has its machine from the start, and is a node later.
        made.configure("usernetes", workers=WORKERS)
        made.up()
        yield made


def of_type(dev: Checkout, cluster_type: str) -> set[str]:
    """Configure a cluster of another type; gives the classes of what goes, as a preview says it."""
    with dev.configuration() as config:
        config["gpu-clusters:cluster-type"] = cluster_type
    return {step.split()[1] for step in dev.plan() if step.startswith("delete ")}


def without_rke2(dev: Checkout, *machines: str) -> None:
    for host in machines:
        left = "ls -d /var/lib/rancher/rke2 /usr/local/bin/rke2 2>/dev/null || true"
        assert dev.on_host(host, left) == ""


def without_caas(dev: Checkout, machine: str) -> None:
    assert dev.on_host(machine, "sudo -n virsh list --all --name").split() == []
    assert "intel_iommu" not in dev.on_host(machine, "cat /boot/grub/grub.cfg")
    assert "nvidia.com-pgpu.json" not in dev.on_host(machine, "ls /etc/cdi || true")
    names = {n["metadata"]["name"] for n in dev.kubectl("get", "namespaces")["items"]}
    assert not {name for name in names if name.startswith(("tenant-", "gpu-clusters-"))}
    kinds = "clusterroles,clusterrolebindings,customresourcedefinitions,validatingadmissionpolicies"
    left = {item["metadata"]["name"] for item in dev.kubectl("get", kinds)["items"]}
    # The lab has roles of its own, for what plays kubelets.
    lab = "gpu-clusters-kubelet"
    assert not [n for n in left if "gpu-clusters" in n and not n.startswith(lab)]


def uuids(dev: Checkout, host: str) -> set[str]:
    """Those of the machine's GPUs, and those that its node container knows."""
    shown = dev.on_host(host, "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    listed = dev.on_host(host, f"{AS_OWNER} docker exec usernetes-node nvidia-ctk cdi list")
    known = {line.removeprefix("nvidia.com/gpu=") for line in listed.split()}
    assert known == {*shown, "all"}
    return set(shown)


def test_tenants_get_kata_on_a_cluster_that_the_stack_makes(dev: Checkout) -> None:
    nodes = {
        name: (
            {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"],
            "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"],
            [taint["key"] for taint in node["spec"].get("taints", [])],
        )
        for name, node in dev.nodes_of_api().items()
    }
    assert nodes == {"cp-00": ("True", True, ["CriticalAddonsOnly"]), "hgx-01": ("True", False, [])}
    (tenancy,) = dev.kubectl("get", "tenancies")["items"]
    assert {c["type"]: c["status"] for c in tenancy["status"]["conditions"]}["Ready"] == "True"
    dev.comes_to([1, 5, 12, 14], "hgx-01")
    dev.unharmed("cp-00", "hgx-01")
    # With the CIS profile every namespace of ours says what its pods may.
    enforced = {
        item["metadata"]["name"]: item["metadata"]["labels"].get(
            "pod-security.kubernetes.io/enforce"
        )
        for item in dev.kubectl("get", "namespaces")["items"]
        if not item["metadata"]["name"].startswith(("kube-", "default"))
    }
    assert enforced == {
        "gpu-clusters-controllers": "restricted",
        "gpu-clusters-device-plugin": "privileged",
        "gpu-clusters-system": "restricted",
        "kata-system": "privileged",
        "tenant-acme": "restricted",
    }


def test_a_cluster_of_one_account_without_privileges_takes_its_place(dev: Checkout) -> None:
    dev.configure("usernetes", workers=WORKERS[:1], proof={"rung": 4})
    goes = of_type(dev, "usernetes")
    assert {"Rke2Node", "VfioBinding", "Release", "TenancyPolicy"} <= goes
    dev.up()
    assert not [r["urn"] for r in dev.state() if ":caas:" in r["urn"]]
    without_rke2(dev, "cp-00", "hgx-01")
    without_caas(dev, "hgx-01")
    assert dev.gpus() == {"u7s-01": FOUR, "u7s-02": FOUR}
    for host in ("u7s-01", "u7s-02"):
        assert "rootless" in dev.on_host(host, f"{AS_OWNER} docker info")
        assert uuids(dev, host)
    dev.unharmed("u7s-01", "u7s-02")


def test_a_third_worker_comes_alone_and_a_machine_that_was_replaced_gets_its_node_anew(
    dev: Checkout,
) -> None:
    dev.configure("usernetes", workers=WORKERS)
    own = ["GpuDriver u7s-03-driver", "RootlessHost u7s-03-rootless", "UsernetesNode u7s-03-node"]
    comes = dev.plan()
    assert {*(f"create {one}" for one in own), "update PluginGate gpus-gate"} <= set(comes)
    assert not [step for step in comes if "u7s-01" in step or "u7s-02" in step]

    before = uuids(dev, "u7s-02")
    done = dev.run("lab", "reinstall", "u7s-02")
    assert done.returncode == 0, done.stdout + done.stderr
    injecting.inject(dev.lab / "hosts", "u7s-02", faults.GpusReplaced())
    dev.configure("usernetes", proof=TRAINING)
    dev.up()
    assert uuids(dev, "u7s-02").isdisjoint(before), "another machine has other GPUs"
    assert dev.gpus() == {"u7s-01": FOUR, "u7s-02": FOUR, "u7s-03": FOUR}
    dev.not_in_state("client-key-data", "kubeadm join")

    dev.configure("usernetes", workers=WORKERS[:1])
    of_all = {"update PluginGate gpus-gate", "update TrainingProof proof"}
    goes = dev.plan()
    assert {f"delete {one}" for one in own} | of_all <= set(goes)
    assert not [step for step in goes if "u7s-01" in step or "u7s-02" in step]
    dev.configure("usernetes", workers=WORKERS)


def test_every_rung_is_climbed_again_and_kept_as_evidence_and_a_fault_fails_at_its_own(
    dev: Checkout, tmp_path: Path
) -> None:
    done = dev.run("verify", "--json", "--evidence", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("ladder-*.json")
    assert dev.run("verify", "--check", str(bundle)).returncode == 0
    assert "simulated" in json.dumps(
        json.loads(dev.run("training-times", str(bundle), "--json").stdout)
    )
    stand_in = dev.lab / "usernetes"
    in_node.inject(stand_in, in_node.NamesByIndex(node="u7s-02"))
    done = dev.run("verify", "--json")
    in_node.clear(stand_in)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [one for one in json.loads(done.stdout)["checks"] if one["outcome"] == "failed"]
    assert [(one["level"], one["subject"]) for one in failed] == [("R8", "u7s-02")]
    assert "no names by UUID, or those of other GPUs" in failed[0]["said"]


def test_a_killed_up_makes_of_bare_machines_an_rke2_cluster_whose_nodes_offer_their_gpus(
    dev: Checkout,
) -> None:
    goes = of_type(dev, "rke2")
    assert {"UsernetesNode", "RootlessHost", "GpuDriver"} <= goes
    met = up_through_kills(dev, KILLS)
    assert len(met) >= len(KILLS) - 1, met
    for host in ("u7s-01", "u7s-02", "u7s-03"):
        containers = dev.on_host(host, f"{AS_OWNER} docker ps -a 2>&1 || true")
        assert re.search("CONTAINER ID|not found|Cannot connect", containers), containers
        assert "usernetes-node" not in containers
    # What goes last takes the RuntimeClass of both with it, and the operator makes it again.
    eventually(lambda: dev.gpus() == OFFERED, "the GPUs of the new cluster")
    pools = {
        name: node["metadata"]["labels"].get("gpu-clusters.dev/pool")
        for name, node in dev.nodes_of_api().items()
    }
    of_agents = {"gpu-01": "whole", "gpu-02": "sliced", "worker-01": "plain"}
    assert pools == {**dict.fromkeys(SERVERS), **of_agents}
    namespace = dev.kubectl("get", "namespace", "gpu-operator")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    for host in ("gpu-01", "gpu-02"):
        shown = dev.on_host(host, "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
        assert set(shown.split()) == {"580.178.04"}
    dev.unharmed(*OFFERED)
    token = dev.on_host("cp-01", "sudo -n cat /var/lib/rancher/rke2/server/token").strip()
    assert len(token) > 20
    dev.not_in_state(token.rsplit(":", 1)[-1])
    urns = [resource["urn"] for resource in dev.state()]
    assert len(set(urns)) == len(urns)
    eventually(lambda: dev.plan("--refresh") == [], "a cluster that nothing is to be changed in")


def test_another_layout_of_one_pool_leaves_the_others_alone(dev: Checkout) -> None:
    dev.configure("rke2", pools=[WHOLE, {**SLICED, "mig": "all-2g.20gb"}, PLAIN])
    assert dev.plan() == [
        "update GpuReadiness gpus-gate",
        "update MigLayout gpu-02-mig",
        "update ProofRun proof",
    ]
    # Which runs nothing: slices were computed with before.
    dev.configure("rke2", proof={"level": "L0"})
    dev.up()
    assert dev.gpus() == {**OFFERED, "gpu-02": {"nvidia.com/gpu": "24"}}


def test_drift_of_an_rke2_cluster_is_found_and_a_machine_that_is_away_hides_nothing(
    dev: Checkout,
) -> None:
    wanted = by_hand(dev, "of rke2")
    # As after somebody unloaded the module and loaded another.
    (version,) = (dev.lab / "hosts" / "gpu-01").rglob("proc/driver/nvidia/version")
    version.write_text(version.read_text().replace("580.178.04", "570.86.15"))
    with dev.api() as api:
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}})
    injecting.inject(dev.lab / "hosts", "cp-01", faults.RefuseConnections())
    code, report = drift(dev)
    injecting.clear(dev.lab / "hosts", "cp-01")
    assert code == 2, json.dumps(report, indent=1)
    assert any("cp-01" in one["what"] for one in report["not_looked_at"])
    wanted |= {
        ("driver.loaded-other", "gpu-01", "gpu-01-driver"),
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
    assert ("node.allocatable-lower", "gpu-02") in {one[:2] for one in told(report)}
    assert report["up_would"], "what up would do is known for what was reached"


def test_destroy_takes_the_machines_out_of_the_cluster_and_ends_it(dev: Checkout) -> None:
    dev.destroy()
    assert set(dev.nodes_of_api()) == {"stranger"}, "a node of somebody else stays"
    without_rke2(dev, *OFFERED)
