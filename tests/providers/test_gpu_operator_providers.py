"""The GPU Operator, proofs and the plugin's gate: providers in the SDK's own process, a real API server."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.gpu_operator.objects import CRD
from gpuclusters.kube.objects import KubernetesObjects
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Resource

pytestmark = pytest.mark.lab

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"
NOWHERE = beside(__file__, "nowhere.yaml")


@pytest.fixture
def objects(kube_api: KubeCluster) -> KubernetesObjects:
    return KubernetesObjects(kube_api.kubeconfig.read_text())


@pytest.fixture
def of(kube_api: KubeCluster, start_provider: StartProvider) -> Callable[..., Resource]:
    """A resource of the cluster."""

    def make(kind: str, **inputs: Any) -> Resource:
        known = {"cluster": "gpus", "kubeconfig": kube_api.kubeconfig.read_text()}
        return start_provider().of(kind, known | inputs)

    return make


def test_definitions_are_applied_found_replaced_and_never_removed(
    objects: KubernetesObjects, of: Callable[..., Resource]
) -> None:
    crds = of("GpuOperatorCrds", reference=str(CHART), content="one")
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
    crds = of("GpuOperatorCrds", reference=str(archive), content="one", with_nfd=False)
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
    of("GpuOperatorCrds", content="one", **inputs).refused("create", problem)


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
    look = of("GpuOperatorPreflight", namespace=namespace, with_nfd=True)
    look.refused("create", f"delete secret {record}")
    with kube_api.api() as api:
        api.delete(f"{path}/{record}")


@pytest.mark.parametrize("name", NOWHERE)
def test_a_cluster_without_its_nodes_or_its_api_is_not_proven_and_nothing_is_made(
    kube_api: KubeCluster, of: Callable[..., Resource], name: str
) -> None:
    row = NOWHERE[name]
    asked = of(name, **row["inputs"])
    assert "Traceback" not in asked.refused("create", f"API server {kube_api.url}", *row["said"])
    with kube_api.api() as api:
        for namespace in ("gpu-proof", NOWHERE["TrainingProof"]["inputs"]["namespace"]):
            assert api.request("GET", f"/api/v1/namespaces/{namespace}")[0] == 404
    away = "https://127.0.0.1:1"
    elsewhere = asked.wanted["kubeconfig"].replace(kube_api.url, away)
    said = asked.refused("create", away, row["without api"], kubeconfig=elsewhere)
    assert yaml.safe_load(elsewhere)["users"][0]["user"]["client-key-data"] not in said
