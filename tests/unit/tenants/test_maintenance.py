"""Which containers a node in maintenance ends, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.core.ports import ObjectKind
from gpuclusters.maintenance import decide
from gpuclusters.maintenance.decide import Drain, MaintenanceInputs
from tests.fixtures.waiting import Waiting


@dataclass
class Cluster(Waiting):
    """A node, leases, and what happens to them with time."""

    leases: list[dict[str, Any]]
    then: Callable[[Cluster], None] = lambda _cluster: None
    target: str = "API server https://192.0.2.9:6443"
    deleted: list[str] = field(default_factory=list)

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        return {"metadata": {"name": name}}

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        return self.leases

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(body)

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        self.deleted.append(f"{namespace}/{name}")

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.then(self)


def lease(module: int, phase: str, tenant: str | None = None, node: str = "hgx-01") -> Any:
    holder = {"tenant": tenant, "namespace": f"tenant-{tenant}", "pod": f"{tenant}-1"}
    return {
        "metadata": {"name": f"{node}-gpu{module}"},
        "spec": {"node": node},
        "status": {"phase": phase} | ({"holder": holder} if tenant else {}),
    }


def begin(cluster: Cluster, drain: Drain) -> decide.Duty:
    inputs = MaintenanceInputs(
        cluster="dev", kubeconfig="x", node="hgx-01", drain=drain, timeout_seconds=60
    )
    return decide.begin(inputs, cluster, cluster, cluster)


def become_free(cluster: Cluster) -> None:
    for one in cluster.leases:
        if one["spec"]["node"] == "hgx-01":
            one["status"] = {"phase": "Free"}


def test_waiting_ends_nothing_and_says_what_it_waits_for() -> None:
    cluster = Cluster([lease(1, "Leased", "acme"), lease(2, "Scrubbing")], become_free)
    assert begin(cluster, Drain.WAIT)["busy"] == []
    assert cluster.deleted == []
    (line,) = cluster.notes
    assert "waiting for: GPU hgx-01-gpu1 (Leased, acme/acme-1); GPU hgx-01-gpu2 (Scrubbing)" in line


def test_a_gpu_that_waits_for_its_lost_node_says_so() -> None:
    waiting = lease(1, "Releasing", "acme")
    waiting["status"] |= {
        "reason": "WaitingForNode",
        "message": "hgx-01 is NotReady since 2026-11-22T15:04:05Z",
    }
    cluster = Cluster([waiting], become_free)
    begin(cluster, Drain.WAIT)
    (line,) = cluster.notes
    assert "(Releasing, acme/acme-1; hgx-01 is NotReady since 2026-11-22T15:04:05Z)" in line


def test_eviction_ends_each_container_of_this_node_once() -> None:
    held = [
        lease(1, "Leased", "acme"),
        lease(2, "Leased", "acme"),
        lease(3, "Activating", "globex"),
    ]
    cluster = Cluster([*held, lease(1, "Leased", "initech", node="hgx-02")], become_free)
    begin(cluster, Drain.EVICT)
    assert cluster.deleted == ["tenant-acme/acme-1", "tenant-globex/globex-1"]


def test_quarantine_is_no_reason_to_wait_unless_a_pod_still_has_the_gpu() -> None:
    duty = begin(Cluster([lease(1, "Quarantined")]), Drain.WAIT)
    assert duty["quarantined"] == ["hgx-01-gpu1"]
    with pytest.raises(Refused, match=r"hgx-01-gpu1 \(Quarantined, acme/acme-1\)"):
        begin(Cluster([lease(1, "Quarantined", "acme")]), Drain.WAIT)
