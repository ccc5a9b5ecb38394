"""What `gpu-clusters doctor` says of a cluster, by what its API server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.cli import doctor
from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.stack import check_stack_file
from gpuclusters.core.errors import AdapterError, UnreachableError
from gpuclusters.core.ports import ObjectKind
from tests.fixtures.tables import beside
from tests.unit.cli.conftest import ROOT


@dataclass
class Cluster:
    """An API server with these nodes."""

    nodes: Sequence[Mapping[str, Any]] = ()
    forbidden: set[str] = field(default_factory=set)
    error: AdapterError | None = None
    used: bool = True
    events: Sequence[Mapping[str, Any]] = ()
    pods: Sequence[Mapping[str, Any]] = ()
    target = "API server https://10.0.0.1:6443"

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
        known = {"Node": self.nodes, "Event": self.events, "Pod": self.pods, "GPULease": ()}
        return [one for one in known[kind.kind] if namespace in ("", namespace_of(one))]


def namespace_of(one: Mapping[str, Any]) -> str:
    return str(one["metadata"].get("namespace", ""))


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


Told = Callable[..., list[Diagnosis]]
NODES = beside(__file__, "doctor.yaml")["nodes"]
BOTH = [node("hgx-01"), node("hgx-02")]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Of a cluster: what is not well, or what is if all is."""

    def told(**cluster: Any) -> list[Diagnosis]:
        made = Cluster(**cluster)
        monkeypatch.setattr(doctor, "KubernetesObjects", lambda _kubeconfig: made)
        found = list(doctor.cluster(config(), "kubeconfig"))
        return [one for one in found if one.level is not Level.OK] or found

    return told


def test_a_cluster_that_is_right_has_nothing_to_complain_of(told: Told) -> None:
    found = told(nodes=BOTH)
    assert {d.level for d in found} == {Level.OK}
    assert found[-1].text == "2 of 2 nodes are as declared, with all GPUs"
    assert {d.level for d in told(used=False)} == {Level.OK}, "nothing of ours is in it"


@pytest.mark.parametrize("row", NODES, ids=lambda row: row["text"])
def test_what_is_wrong_with_nodes_is_told_once_for_all_of_them(
    row: dict[str, Any], told: Told
) -> None:
    found = told(nodes=[node(name, **changes) for name, changes in row["nodes"].items()])
    assert {d.level for d in found} == {Level.WARNING}
    assert all(d.fix for d in found)
    assert any(d.text.startswith(row["text"]) for d in found)


def pod(name: str, namespace: str = "tenant-acme", said: str = "") -> dict[str, Any]:
    status = {"lastState": {"terminated": {"message": said}}} if said else {}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "status": {"containerStatuses": [status]},
    }


def test_why_containers_do_not_start_or_find_no_gpu_is_told(told: Told) -> None:
    slow = "Failed to create pod sandbox: rpc error: context deadline exceeded"
    pods = [pod("c-1"), pod("c-2"), pod("c-3", said="cuInit failed: 802"), pod("x", "other")]
    about = [("c-1", "tenant-acme"), ("c-1", "tenant-acme"), ("c-2", "tenant-acme")]
    events = [
        {
            "metadata": {"namespace": namespace},
            "type": "Warning",
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name},
            "message": slow,
        }
        for name, namespace in [*about, ("gone", "tenant-acme"), ("x", "other")]
    ]
    by_id = {d.id: d for d in told(nodes=BOTH, pods=pods, events=events)}
    assert set(by_id) == {"container.boot-too-slow", "guest.fabric-not-ready"}
    slowly = by_id["container.boot-too-slow"]
    assert slowly.text.startswith("tenant-acme/c-1, tenant-acme/c-2: the VM did not boot")
    assert "runtimeRequestTimeout" in slowly.fix
    assert "tenant-acme/c-3" in by_id["guest.fabric-not-ready"].text


@pytest.mark.parametrize(
    ("cluster", "text", "fix"),
    [
        (
            {"nodes": BOTH, "forbidden": {"customresourcedefinitions", "clusterroles"}},
            "create customresourcedefinitions, create clusterroles, bind clusterroles",
            "cluster-admin",
        ),
        (
            {"error": UnreachableError("API server x", "ask", "no answer", "check the address")},
            "API server x: no answer",
            "check the address",
        ),
    ],
)
def test_what_keeps_an_up_from_working_is_a_failure(
    cluster: dict[str, Any], text: str, fix: str, told: Told
) -> None:
    (failure,) = told(**cluster)
    assert failure.level is Level.FAILURE
    assert text in failure.text
    assert fix in failure.fix
