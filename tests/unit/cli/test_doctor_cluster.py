"""What `gpu-clusters doctor` says of a cluster, by what its API server answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.cli import doctor
from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.stack import check_stack_file
from gpuclusters.core.errors import AdapterError, UnreachableError
from gpuclusters.core.ports import ObjectKind

ROOT = Path(__file__).resolve().parents[3]


class Cluster:
    """An API server with these nodes."""

    target = "API server https://10.0.0.1:6443"

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self.nodes = nodes
        self.forbidden: set[str] = set()
        self.error: AdapterError | None = None
        self.used = True
        self.events: list[Mapping[str, Any]] = []
        self.pods: list[Mapping[str, Any]] = []

    def version(self) -> str:
        if self.error is not None:
            raise self.error
        return "v1.36.3"

    def may_we(self, attributes: Mapping[str, str]) -> bool:
        return attributes["resource"] not in self.forbidden

    def get(self, kind: ObjectKind, name: str) -> dict[str, Any] | None:
        assert (kind.kind, name) == ("Namespace", "gpu-clusters-system")
        return {} if self.used else None

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Mapping[str, Any]]:
        assert bool(namespace) == kind.namespaced
        known = {"Node": self.nodes, "Event": self.events, "Pod": self.pods, "GPULease": ()}[
            kind.kind
        ]
        return [one for one in known if namespace in ("", one["metadata"].get("namespace"))]


def config() -> CaasConfig:
    checked = check_stack_file(ROOT / "Pulumi.dev.yaml")
    assert not isinstance(checked, list)
    return checked.section


def node(name: str, *, gpus: int = 8, ready: str = "True", labels: bool = True) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": dict(config().kata.node_selector) if labels else {},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"nvidia.com/pgpu": str(gpus)},
        },
    }


def said(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    monkeypatch.setattr(doctor, "KubernetesObjects", lambda _kubeconfig: cluster)
    return list(doctor.cluster(config(), "kubeconfig"))


def test_a_cluster_that_is_right_has_nothing_to_complain_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = said(Cluster([node("hgx-01"), node("hgx-02")]), monkeypatch)
    assert {d.level for d in found} == {Level.OK}
    assert found[-1].text == "2 of 2 nodes are as declared, with all GPUs"


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("hgx-01")], "hgx-02: a node is not in the cluster (no such node;"),
        (
            [node("hgx-01"), node("hgx-02", ready="False")],
            "hgx-02: a node is not Ready (False: nothing is said;",
        ),
        (
            [node("hgx-01", gpus=7), node("hgx-02", gpus=7)],
            "hgx-01, hgx-02: a node offers fewer GPUs than it has (7 nvidia.com/pgpu; declared: 8",
        ),
        (
            [node("hgx-01"), node("hgx-02", labels=False)],
            "hgx-02: a node's label is gone (no such label; declared:",
        ),
    ],
)
def test_what_is_wrong_with_nodes_is_told_once_for_all_of_them(
    nodes: list[dict[str, Any]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [d for d in said(Cluster(nodes), monkeypatch) if d.level is Level.WARNING]
    assert found
    assert all(d.fix for d in found)
    assert any(d.text.startswith(text) for d in found)


def pod(name: str, namespace: str = "tenant-acme", said: str = "") -> dict[str, Any]:
    status = {"lastState": {"terminated": {"message": said}}} if said else {}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "status": {"containerStatuses": [status]},
    }


def event(name: str, message: str, namespace: str = "tenant-acme") -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": namespace, "name": name}
    return {
        "metadata": {"namespace": namespace},
        "type": "Warning",
        "involvedObject": about,
        "message": message,
    }


def test_why_containers_do_not_start_or_find_no_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster([node("hgx-01"), node("hgx-02")])
    slow = "Failed to create pod sandbox: rpc error: context deadline exceeded"
    cluster.pods = [
        pod("c-1"),
        pod("c-2"),
        pod("c-3", said="cuInit failed: 802"),
        pod("x", "other"),
    ]
    cluster.events = [
        event("c-1", slow),
        event("c-1", slow),
        event("c-2", slow),
        event("gone", slow),
        event("x", slow, "other"),
    ]
    by_id = {d.id: d for d in said(cluster, monkeypatch) if d.level is Level.WARNING}
    assert set(by_id) == {"container.boot-too-slow", "guest.fabric-not-ready"}
    slowly = by_id["container.boot-too-slow"]
    assert slowly.text.startswith("tenant-acme/c-1, tenant-acme/c-2: the VM did not boot")
    assert "runtimeRequestTimeout" in slowly.fix
    assert "tenant-acme/c-3" in by_id["guest.fabric-not-ready"].text


def test_an_account_that_may_not_is_told_what(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([node("hgx-01"), node("hgx-02")])
    cluster.forbidden = {"customresourcedefinitions", "clusterroles"}
    (failure,) = (d for d in said(cluster, monkeypatch) if d.level is Level.FAILURE)
    assert (
        "create customresourcedefinitions, create clusterroles, bind clusterroles" in failure.text
    )
    assert "cluster-admin" in failure.fix


def test_a_cluster_with_nothing_of_ours_in_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([])
    cluster.used = False
    assert {d.level for d in said(cluster, monkeypatch)} == {Level.OK}


def test_an_api_server_that_is_silent_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([])
    cluster.error = UnreachableError("API server x", "ask", "no answer", "check the address")
    (found,) = said(cluster, monkeypatch)
    assert (found.level, found.text, found.fix) == (
        Level.FAILURE,
        "API server x: no answer",
        "check the address",
    )
