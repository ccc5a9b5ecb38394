"""The providers around the GPU Operator, in the SDK's own process against a real API server."""

import secrets
import shutil
import tarfile
from collections.abc import Iterator
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
from gpuclusters.tenancy.objects import NODE
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Read, StepFailed

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


def crd_inputs(kube_api: KubeCluster, reference: Path | str, **changes: Any) -> dict[str, Any]:
    return {
        "cluster": "gpus",
        "kubeconfig": kube_api.kubeconfig.read_text(),
        "reference": str(reference),
        "content": "one",
    } | changes


def test_definitions_are_applied_found_replaced_and_never_removed(
    kube_api: KubeCluster, objects: KubernetesObjects, start_provider: StartProvider
) -> None:
    provider = start_provider()
    inputs = crd_inputs(kube_api, CHART)
    made = provider.create(GpuOperatorCrdsProvider, inputs)
    assert made.id == "gpus/gpu-operator-crds"
    assert "clusterpolicies.nvidia.com" in made.outputs["names"]
    assert "nodefeatures.nfd.k8s-sigs.io" in made.outputs["names"]
    assert not provider.diff(GpuOperatorCrdsProvider, made.outputs, inputs).changes
    assert provider.diff(GpuOperatorCrdsProvider, made.outputs, inputs | {"content": "two"}).changes

    name = "nvidiadrivers.nvidia.com"
    found = objects.get(CRD, name)
    assert found
    metadata = {"name": name, "annotations": {"gpu-clusters.dev/content": "of another version"}}
    body = {"apiVersion": CRD.api_version, "kind": CRD.kind, "metadata": metadata}
    replaced = {**body, "spec": found["spec"]}

    def drift() -> Read | None:
        # Tests beside this one apply the same definitions to the same cluster.
        objects.take(CRD, replaced, manager="test-other")
        read = provider.read(GpuOperatorCrdsProvider, made)
        return read if read.outputs["stale"] == [name] else None

    drifted = eventually(drift)
    assert provider.diff(GpuOperatorCrdsProvider, drifted.outputs, inputs).changes
    again = provider.update(GpuOperatorCrdsProvider, made, inputs)
    made.outputs = again.outputs
    assert provider.read(GpuOperatorCrdsProvider, made).outputs["stale"] == []

    provider.delete(GpuOperatorCrdsProvider, made)
    assert objects.get(CRD, "clusterpolicies.nvidia.com") is not None


def test_an_archive_is_taken_only_with_its_checksum(
    kube_api: KubeCluster, start_provider: StartProvider, tmp_path: Path
) -> None:
    copy = tmp_path / "gpu-operator"
    shutil.copytree(CHART, copy)
    archive = tmp_path / "gpu-operator-v26.7.0.tgz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(copy, "gpu-operator")
    provider = start_provider()
    made = provider.create(GpuOperatorCrdsProvider, crd_inputs(kube_api, archive, with_nfd=False))
    assert "nodefeatures.nfd.k8s-sigs.io" not in made.outputs["names"]
    with pytest.raises(StepFailed, match=f"expected {'0' * 64}; do not use it"):
        provider.create(GpuOperatorCrdsProvider, crd_inputs(kube_api, archive, sha256="0" * 64))


@pytest.mark.parametrize(
    ("reference", "repository", "problem"),
    [
        ("gpu-operator", "", "neither a file or folder here nor in a repository"),
        ("oci://example.com/gpu-operator", "", "helm pull"),
        ("gpu-operator", "https://127.0.0.1:9/nvidia", "or give the chart as a file"),
        (str(Path(__file__).parent), "", r"no clusterpolicies\.nvidia\.com"),
    ],
)
def test_a_chart_that_cannot_be_had_is_said_with_the_way_out(
    kube_api: KubeCluster,
    start_provider: StartProvider,
    reference: str,
    repository: str,
    problem: str,
) -> None:
    inputs = crd_inputs(kube_api, reference, repository=repository, version="v26.7.0")
    with pytest.raises(StepFailed, match=problem):
        start_provider().create(GpuOperatorCrdsProvider, inputs)


def test_a_refresh_finds_what_an_interrupted_run_left(
    kube_api: KubeCluster, namespace: str, start_provider: StartProvider
) -> None:
    provider = start_provider()
    with kube_api.api() as api:
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        metadata = {"name": namespace, "labels": labels}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    inputs = {
        "cluster": "gpus",
        "kubeconfig": kube_api.kubeconfig.read_text(),
        "namespace": namespace,
        "with_nfd": True,
    }
    record = f"sh.helm.release.v1.gpu-operator.v{4}"
    labels = {"owner": "helm", "name": "gpu-operator", "status": "pending-upgrade", "version": "4"}
    with kube_api.api() as api:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": record, "labels": labels},
        }
        assert api.request("POST", path, body)[0] == 201
    with pytest.raises(StepFailed, match=f"delete secret {record}"):
        provider.create(GpuOperatorPreflightProvider, inputs)
    with kube_api.api() as api:
        api.delete(f"{path}/{record}")


def test_an_api_server_that_stays_away_ends_the_wait_with_that(
    kube_api: KubeCluster, start_provider: StartProvider
) -> None:
    port = kube_api.url.rpartition(":")[2]
    away = kube_api.kubeconfig.read_text().replace(f":{port}", ":9")
    inputs = {
        "cluster": "gpus",
        "kubeconfig": away,
        "expected": {"gpu-01": {"nvidia.com/gpu": 8}},
        "timeout_seconds": 1,
    }
    with pytest.raises(
        StepFailed, match=r"(?s)not ready after 1 s:.*the API server does not answer"
    ):
        start_provider().create(GpuReadinessProvider, inputs)


def test_a_layout_is_found_lost_and_given_up(
    kube_api: KubeCluster,
    objects: KubernetesObjects,
    node: str,
    start_provider: StartProvider,
) -> None:
    provider = start_provider()
    inputs = {
        "cluster": "gpus",
        "kubeconfig": kube_api.kubeconfig.read_text(),
        "node": node,
        "layout": "all-1g.10gb",
        "expected": {SLICES: 56},
        "timeout_seconds": 150,
    }
    objects.take(
        NODE,
        _node(node, {"nvidia.com/mig.config": "all-1g.10gb"}),
        manager="gpu-clusters-mig",
    )
    made = provider.create(MigLayoutProvider, inputs)
    assert made.outputs["current"] == "all-1g.10gb"
    assert made.outputs["allocatable"] == {SLICES: 56}
    assert not provider.diff(MigLayoutProvider, made.outputs, inputs).changes
    assert provider.diff(MigLayoutProvider, made.outputs, inputs | {"node": "other"}).replaces == [
        "node"
    ]

    objects.take(NODE, _node(node, {"nvidia.com/mig.config": "all-disabled"}), manager="someone")
    lost = provider.read(MigLayoutProvider, made)
    assert lost.outputs["current"] == "all-disabled"
    assert provider.diff(MigLayoutProvider, lost.outputs, inputs).changes
    objects.take(
        NODE, _node(node, {"nvidia.com/mig.config": "all-1g.10gb"}), manager="gpu-clusters-mig"
    )
    objects.take(NODE, _node(node, {}), manager="someone")

    provider.delete(MigLayoutProvider, made)
    left = objects.get(NODE, node)
    assert left
    assert "nvidia.com/mig.config" not in left["metadata"].get("labels", {})
