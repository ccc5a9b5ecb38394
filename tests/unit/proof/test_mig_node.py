"""A node's MIG layout: asked for by a label, refused while pods use the GPUs, waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gpuclusters.core.converge import converge
from gpuclusters.core.finding import Refused
from gpuclusters.gpu_operator.mig_node import MigInputs, MigNode, MigState
from tests.fixtures.waiting import Waiting

SLICES = "nvidia.com/mig-1g.10gb"


@dataclass
class Cluster:
    """One node; `manager` plays the MIG manager at every look, as many as there were since the label."""

    labels: dict[str, str] = field(default_factory=dict)
    allocatable: dict[str, str] = field(default_factory=lambda: {"nvidia.com/gpu": "8"})
    pods: list[dict[str, Any]] = field(default_factory=list)
    manager: Callable[[Cluster, int], None] = lambda cluster, looks: None
    taken: list[Mapping[str, Any]] = field(default_factory=list)
    looks: int = 0
    target: str = "API server https://a:6443"
    gone: bool = False

    def get(self, kind: Any, name: str, namespace: str = "") -> dict[str, Any] | None:
        if self.taken:
            self.looks += 1
            self.manager(self, self.looks)
        if self.gone:
            return None
        return {
            "metadata": {"name": name, "labels": dict(self.labels)},
            "status": {"allocatable": dict(self.allocatable)},
        }

    def list(self, kind: Any, namespace: str = "") -> list[dict[str, Any]]:
        return self.pods

    def take(self, kind: Any, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        assert manager == "gpu-clusters-mig"
        self.taken.append(body)
        labels = body["metadata"].get("labels") or {}
        self.labels = {k: v for k, v in self.labels.items() if k != "nvidia.com/mig.config"}
        self.labels |= labels
        return dict(body)

    def delete(self, kind: Any, name: str, namespace: str = "") -> None:
        self.pods = [p for p in self.pods if p["metadata"]["name"] != name]


def divides(cluster: Cluster, looks: int) -> None:
    if looks < 3:
        cluster.labels["nvidia.com/mig.config.state"] = "pending"
    else:
        cluster.labels["nvidia.com/mig.config.state"] = "success"
        cluster.allocatable = {"nvidia.com/gpu": "0", SLICES: "56"}


def fails(cluster: Cluster, looks: int) -> None:
    cluster.labels["nvidia.com/mig.config.state"] = "pending" if looks < 2 else "failed"


def pod(namespace: str, name: str, resource: str = "nvidia.com/gpu", **changes: Any) -> Any:
    limits = {resource: "1"}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": "gpu-01", "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    } | changes


def inputs(**changes: Any) -> MigInputs:
    values = {"cluster": "c", "kubeconfig": "k", "node": "gpu-01", "timeout_seconds": 60}
    wanted = {"layout": "all-1g.10gb", "expected": {SLICES: 56}}
    return MigInputs.model_validate(values | wanted | changes)


def node(cluster: Cluster, clock: Waiting | None = None, **changes: Any) -> MigNode:
    return MigNode(inputs(**changes), cast(Any, cluster), clock or Waiting(), Waiting())


def ensure(cluster: Cluster, clock: Waiting | None = None, **changes: Any) -> MigState:
    live = converge(node(cluster, clock, **changes), Waiting())
    assert live is not None
    return live


MINE = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "success"}


def test_the_label_is_taken_and_the_slices_are_waited_for() -> None:
    cluster = Cluster(labels={"nvidia.com/mig.config": "all-disabled"}, manager=divides)
    state = ensure(cluster)
    metadata = {"name": "gpu-01", "labels": {"nvidia.com/mig.config": "all-1g.10gb"}}
    assert cluster.taken == [{"apiVersion": "v1", "kind": "Node", "metadata": metadata}]
    outputs = state.outputs()
    assert (outputs["current"], outputs["state"]) == ("all-1g.10gb", "success")
    assert outputs["allocatable"] == {SLICES: 56}


def divides_after(looks: int) -> Callable[[Cluster, int], None]:
    return lambda cluster, seen: divides(cluster, seen - looks) if seen > looks else None


@pytest.mark.parametrize("state", ["success", "failed"])
def test_the_state_of_the_layout_before_is_not_taken_for_this_ones(state: str) -> None:
    before = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": state}
    cluster = Cluster(labels=before, manager=divides_after(4))
    assert ensure(cluster).state == "success"
    assert cluster.looks >= 7


def test_a_node_that_has_the_layout_is_left_alone() -> None:
    uses = [pod("team", "train", SLICES)]
    cluster = Cluster(labels=dict(MINE), allocatable={SLICES: "56"}, pods=uses)
    ensure(cluster)
    assert cluster.taken == []


def test_pods_that_use_the_gpus_are_named_and_nothing_is_changed() -> None:
    cluster = Cluster(
        pods=[
            pod("team-b", "train", SLICES),
            pod("team-a", "notebook"),
            pod("gpu-operator", "cuda-validator"),
            pod("team-c", "done", status={"phase": "Succeeded"}),
            pod("team-d", "elsewhere", spec={"nodeName": "gpu-02", "containers": []}),
            pod("team-e", "cpu", "memory"),
        ]
    )
    with pytest.raises(Refused, match=r"2 pods .*\(team-a/notebook, team-b/train\).*`evict`"):
        ensure(cluster)
    assert cluster.taken == []
    assert len(cluster.pods) == 6


def test_pods_are_ended_when_that_was_said() -> None:
    cluster = Cluster(pods=[pod("team", "train"), pod("team", "cpu", "memory")], manager=divides)
    ensure(cluster, evict=True)
    assert [p["metadata"]["name"] for p in cluster.pods] == ["cpu"]


def relabels(layout: str, *pods: Any) -> Callable[[Cluster, int], None]:
    def manager(cluster: Cluster, looks: int) -> None:
        cluster.labels["nvidia.com/mig.config"] = layout
        cluster.pods = [*pods]

    return manager


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (Cluster(manager=fails), r"could not make layout .*logs -l app=nvidia-mig-manager"),
        (Cluster(), "state unset, offers 8 nvidia.com/gpu, expected 56"),
        (Cluster(manager=relabels("all-balanced")), "changed its layout to 'all-balanced'"),
        # The operator's first label after ours: the pod is not killed.
        (
            Cluster(manager=relabels("all-disabled", pod("team", "train"))),
            r"would be killed \(team/train\)",
        ),
        (Cluster(gone=True), "no such node"),
    ],
)
def test_a_layout_that_is_not_made_says_why(cluster: Cluster, said: str) -> None:
    with pytest.raises(Refused, match=said):
        ensure(cluster)


def test_a_driver_that_is_still_being_built_does_not_use_up_the_time_of_the_layout() -> None:
    ten_minutes = divides_after(300)
    assert ensure(Cluster(allocatable={}, manager=ten_minutes)).state == "success"
    clock = Waiting()
    with pytest.raises(Refused, match="not done after 2400 s: state unset, offers nothing"):
        ensure(Cluster(allocatable={}), clock)
    assert clock.time <= 2400


@pytest.mark.parametrize("labelled_at", [1, 4])
def test_the_operators_first_label_after_ours_is_outlasted(labelled_at: int) -> None:
    # gpu-operator v26.7.0 labels a capable node without a layout, by a copy of the node that may be older
    # than our label; its MIG manager then works on what it finds.
    def operator(cluster: Cluster, looks: int) -> None:
        if looks == labelled_at:
            cluster.labels["nvidia.com/mig.config"] = "all-disabled"
        elif len(cluster.taken) > 1:
            divides(cluster, looks - labelled_at)
        else:
            cluster.labels["nvidia.com/mig.config.state"] = "success"

    cluster = Cluster(manager=operator)
    assert ensure(cluster).outputs()["allocatable"] == {SLICES: 56}
    assert cluster.labels["nvidia.com/mig.config"] == "all-1g.10gb"


@pytest.mark.parametrize("before", [{}, {"nvidia.com/mig.config": "all-disabled"}])
def test_a_label_that_comes_back_is_a_strangers(before: dict[str, str]) -> None:
    def stranger(cluster: Cluster, looks: int) -> None:
        if looks in {2, 4}:
            cluster.labels["nvidia.com/mig.config"] = "all-disabled"

    cluster = Cluster(labels=before, manager=stranger)
    with pytest.raises(Refused, match="somebody else changed its layout to 'all-disabled'"):
        ensure(cluster)
    assert len(cluster.taken) == (1 if before else 2)


def test_giving_a_layout_up_leaves_the_label_to_the_operator_but_not_under_pods() -> None:
    busy = Cluster(labels=dict(MINE), pods=[pod("team", "train", SLICES)])
    with pytest.raises(Refused, match="team/train"):
        node(busy).remove()
    free = Cluster(labels=dict(MINE))
    node(free).remove()
    assert free.taken[0]["metadata"] == {"name": "gpu-01"}
    others = Cluster(labels={"nvidia.com/mig.config": "all-disabled"})
    node(others).remove()
    assert others.taken == []


@pytest.mark.parametrize(
    ("labels", "offers", "drifted"),
    [
        ({}, 56, False),
        ({"nvidia.com/mig.config": "all-disabled"}, 56, True),
        ({"nvidia.com/mig.config.state": "failed"}, 56, True),
        ({}, 49, True),
    ],
)
def test_a_refresh_that_finds_something_else_is_drift(
    labels: dict[str, str], offers: int, drifted: bool
) -> None:
    found = node(Cluster(labels=MINE | labels, allocatable={SLICES: str(offers)}))
    assert [one.code for one in found.findings(found.observe())] == ["mig.layout-changed"] * drifted
