"""Which containers a node in maintenance ends, and what it waits for."""

from typing import Any

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.maintenance import decide
from gpuclusters.maintenance.decide import Drain, MaintenanceInputs
from tests.unit.tenants import tenant_cluster
from tests.unit.tenants.tenant_cluster import Cluster


def lease(module: int, phase: str, tenant: str = "", node: str = "hgx-01") -> Any:
    return tenant_cluster.lease(f"{node}-gpu{module}", phase, tenant, node=node)


def cluster_of(*leases: Any) -> Cluster:
    """A node whose GPUs become free while somebody waits."""
    cluster = Cluster(then=become_free).add("nodes", {"metadata": {"name": "hgx-01"}})
    return cluster.add("gpuleases", *leases)


def begin(cluster: Cluster, drain: Drain) -> decide.Duty:
    inputs = MaintenanceInputs(
        cluster="dev", kubeconfig="x", node="hgx-01", drain=drain, timeout_seconds=60
    )
    return decide.begin(inputs, cluster, cluster, cluster)


def become_free(cluster: Cluster) -> None:
    for (plural, _), one in cluster.objects.items():
        if plural == "gpuleases" and one["spec"]["node"] == "hgx-01":
            one["status"] = {"phase": "Free"}


def test_waiting_ends_nothing_and_says_what_it_waits_for() -> None:
    cluster = cluster_of(lease(1, "Leased", "acme"), lease(2, "Scrubbing"))
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
    cluster = cluster_of(waiting)
    begin(cluster, Drain.WAIT)
    (line,) = cluster.notes
    assert "(Releasing, acme/acme-1; hgx-01 is NotReady since 2026-11-22T15:04:05Z)" in line


def test_eviction_ends_each_container_of_this_node_once() -> None:
    held = [
        lease(1, "Leased", "acme"),
        lease(2, "Leased", "acme"),
        lease(3, "Activating", "globex"),
    ]
    cluster = cluster_of(*held, lease(1, "Leased", "initech", node="hgx-02"))
    begin(cluster, Drain.EVICT)
    assert cluster.deleted == ["tenant-acme/acme-1", "tenant-globex/globex-1"]


def test_quarantine_is_no_reason_to_wait_unless_a_pod_still_has_the_gpu() -> None:
    closed, kept = cluster_of(lease(1, "Quarantined")), cluster_of(lease(1, "Quarantined", "acme"))
    kept.then = lambda _cluster: None
    duty = begin(closed, Drain.WAIT)
    assert duty["quarantined"] == ["hgx-01-gpu1"]
    with pytest.raises(Refused, match=r"hgx-01-gpu1 \(Quarantined, acme/acme-1\)"):
        begin(kept, Drain.WAIT)
