"""The GPU Operator, proofs and the plugin's gate: providers in the SDK's own process, a real API server."""

import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.gpu_operator.objects import CRD
from gpuclusters.gpu_operator.resource import (
    GpuOperatorCrdsProvider,
    GpuOperatorPreflightProvider,
    GpuReadinessProvider,
    MigLayoutProvider,
)
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.proof.resource import PluginGateProvider, ProofRunProvider, TrainingProofProvider
from gpuclusters.tenancy.objects import NODE
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Resource

pytestmark = pytest.mark.lab

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"
SLICES = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def objects(kube_api: KubeCluster) -> KubernetesObjects:
    return KubernetesObjects(kube_api.kubeconfig.read_text())


@pytest.fixture
def node(kube_api: KubeCluster, objects: KubernetesObjects) -> Iterator[str]:
    """A node that nobody plays, divided and labelled as a MIG manager leaves it."""
    name = f"gpu-{secrets.token_hex(4)}"
    labels = {"nvidia.com/mig.config.state": "success"}
    objects.take(NODE, _node(name, labels), manager="test")
    with kube_api.api() as api:
        api.apply(
            {**_node(name, {}), "status": {"allocatable": {SLICES: "56"}, "capacity": {}}},
            "/status",
        )
    yield name
    objects.delete(NODE, name)


def _node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@pytest.fixture
def of(kube_api: KubeCluster, start_provider: StartProvider) -> Callable[..., Resource]:
    """A resource of the cluster."""

    def make(kind: type[Any], **inputs: Any) -> Resource:
        known = {"cluster": "gpus", "kubeconfig": kube_api.kubeconfig.read_text()}
        return start_provider().of(kind, known | inputs)

    return make


def test_definitions_are_applied_found_replaced_and_never_removed(
    objects: KubernetesObjects, of: Callable[..., Resource]
) -> None:
    crds = of(GpuOperatorCrdsProvider, reference=str(CHART), content="one")
    made = crds.create()
    assert crds.id == "gpus/gpu-operator-crds"
    assert {"clusterpolicies.nvidia.com", "nodefeatures.nfd.k8s-sigs.io"} <= set(made["names"])
    assert not crds.differs()
    assert crds.differs(content="two")

    name = "nvidiadrivers.nvidia.com"
    found = objects.get(CRD, name)
    assert found
    metadata = {"name": name, "annotations": {"gpu-clusters.dev/content": "of another version"}}
    body = {"apiVersion": CRD.api_version, "kind": CRD.kind, "metadata": metadata}
    replaced = {**body, "spec": found["spec"]}

    def stale() -> bool:
        # Tests beside this one apply the same definitions to the same cluster.
        objects.take(CRD, replaced, manager="test-other")
        return crds.refresh().outputs["stale"] == [name]

    eventually(stale)
    assert crds.differs()
    crds.update()
    assert crds.look().outputs["stale"] == []
    crds.delete()
    assert objects.get(CRD, "clusterpolicies.nvidia.com") is not None


def test_an_archive_is_taken_only_with_its_checksum(
    of: Callable[..., Resource], tmp_path: Path
) -> None:
    archive = tmp_path / "gpu-operator-v26.7.0.tgz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(CHART, "gpu-operator")
    crds = of(GpuOperatorCrdsProvider, reference=str(archive), content="one", with_nfd=False)
    assert "nodefeatures.nfd.k8s-sigs.io" not in crds.create()["names"]
    crds.refused("create", f"expected {'0' * 64}; do not use it", sha256="0" * 64)


@pytest.mark.parametrize(
    ("reference", "repository", "problem"),
    [
        ("gpu-operator", "", "neither a file or folder here nor in a repository"),
        ("oci://example.com/gpu-operator", "", "helm pull"),
        ("gpu-operator", "https://127.0.0.1:9/nvidia", "or give the chart as a file"),
        (str(Path(__file__).parent), "", "no clusterpolicies.nvidia.com"),
    ],
)
def test_a_chart_that_cannot_be_had_is_said_with_the_way_out(
    of: Callable[..., Resource], reference: str, repository: str, problem: str
) -> None:
    inputs = {"reference": reference, "repository": repository, "version": "v26.7.0"}
    of(GpuOperatorCrdsProvider, content="one", **inputs).refused("create", problem)


def test_a_refresh_finds_what_an_interrupted_run_left(
    kube_api: KubeCluster, namespace: str, of: Callable[..., Resource]
) -> None:
    record, path = "sh.helm.release.v1.gpu-operator.v4", f"/api/v1/namespaces/{namespace}/secrets"
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    pending = {"owner": "helm", "name": "gpu-operator", "status": "pending-upgrade", "version": "4"}
    with kube_api.api() as api:
        metadata: dict[str, Any] = {"name": namespace, "labels": privileged}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        metadata = {"name": record, "labels": pending}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        assert api.request("POST", path, body)[0] == 201
    look = of(GpuOperatorPreflightProvider, namespace=namespace, with_nfd=True)
    look.refused("create", f"delete secret {record}")
    with kube_api.api() as api:
        api.delete(f"{path}/{record}")


def test_a_layout_is_found_lost_and_given_up(
    objects: KubernetesObjects, node: str, of: Callable[..., Resource]
) -> None:
    def say(layout: str | None, manager: str) -> None:
        labels = {"nvidia.com/mig.config": layout} if layout else {}
        objects.take(NODE, _node(node, labels), manager=manager)

    mig = of(
        MigLayoutProvider,
        node=node,
        layout="all-1g.10gb",
        expected={SLICES: 56},
        timeout_seconds=150,
    )
    say("all-1g.10gb", "gpu-clusters-mig")
    made = mig.create()
    assert made["current"] == "all-1g.10gb"
    assert made["allocatable"] == {SLICES: 56}
    assert not mig.differs()
    assert mig.diff(node="other").replaces == ["node"]

    say("all-disabled", "someone")
    assert mig.drifted().outputs["current"] == "all-disabled"
    say("all-1g.10gb", "gpu-clusters-mig")
    say(None, "someone")

    mig.delete()
    left = objects.get(NODE, node)
    assert left
    assert "nvidia.com/mig.config" not in left["metadata"].get("labels", {})


RUN = {
    "level": "L1",
    "nodes": [{"name": "nowhere", "resources": {"nvidia.com/gpu": 8}}],
    "matmul": {"image": "registry.example.com/proof@sha256:" + "a" * 64, "cuda_major": 12},
}
LADDER = {
    "rung": 8,
    "nodes": [{"name": "nowhere", "gpus": 4}],
    "namespace": "gpu-ladder-of-nobody",
    "settle_seconds": 1,
}
GATE = {"expected": {"nowhere": 4}, "timeout_seconds": 1}
READY = {"expected": {"nowhere": {"nvidia.com/gpu": 8}}, "timeout_seconds": 1}
NOT_PROVEN = (
    "proof L1 does not hold",
    "L0 cluster: the operator is reconciled and every node offers its GPUs: failed",
    "node nowhere is not in the cluster",
)
NOT_CLIMBED = (
    "the ladder up to rung 8 does not hold",
    "R5 nowhere: the node is Ready and has its external address: failed",
    "R8 cluster: a pod with one GPU calculates on it: not-tried",
)
NOT_READY = ("not ready after 1 s", "node nowhere: it is not in the cluster")


@pytest.mark.parametrize(
    ("kind", "inputs", "said", "without_api"),
    [
        (ProofRunProvider, RUN, NOT_PROVEN, "could not "),
        (TrainingProofProvider, LADDER, NOT_CLIMBED, "could not "),
        (PluginGateProvider, GATE, NOT_READY, "the API server does not answer"),
        (GpuReadinessProvider, READY, ("not ready after 1 s",), "the API server does not answer"),
    ],
    ids=["proof", "ladder", "gate", "readiness"],
)
def test_a_cluster_without_its_nodes_or_its_api_is_not_proven_and_nothing_is_made(
    kube_api: KubeCluster,
    of: Callable[..., Resource],
    kind: type[Any],
    inputs: dict[str, Any],
    said: tuple[str, ...],
    without_api: str,
) -> None:
    asked = of(kind, **inputs)
    assert "Traceback" not in asked.refused("create", f"API server {kube_api.url}", *said)
    with kube_api.api() as api:
        for namespace in ("gpu-proof", LADDER["namespace"]):
            assert api.request("GET", f"/api/v1/namespaces/{namespace}")[0] == 404
    away = "https://127.0.0.1:1"
    elsewhere = asked.wanted["kubeconfig"].replace(kube_api.url, away)
    asked.refused("create", away, without_api, kubeconfig=elsewhere)
