"""Which GPUs keep a tenancy that is to go, declared or made on demand."""

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.lease.model import awaited, held_by
from gpuclusters.tenancy.cluster import remove_on_demand
from tests.unit.tenants.tenant_cluster import Body, Cluster, lease

HELD = ("Reserved", "Activating", "Leased", "Releasing")
RECYCLED = ("Resetting", "Scrubbing", "Verifying")


@pytest.mark.parametrize(
    ("phase", "holder", "last", "held", "waits"),
    [
        *((phase, "acme", "", True, True) for phase in HELD),
        *((phase, "globex", "", False, False) for phase in HELD),
        # What the tenant had last is waited for until it is scrubbed.
        *((phase, "", "acme", False, True) for phase in RECYCLED),
        *((phase, "", last, False, False) for phase in RECYCLED for last in ("globex", "")),
        ("Free", "", "", False, False),
        # Quarantine is not waited for, whoever had it.
        ("Quarantined", "", "acme", False, False),
    ],
)
def test_what_a_tenant_holds_or_had_last_is_waited_for(
    phase: str, holder: str, last: str, held: bool, waits: bool
) -> None:
    leases = [lease("g1", phase, holder, last)]
    assert awaited("acme", leases) == ({"g1": phase} if waits else {})
    assert held_by("acme", leases) == ([f"g1 ({phase})"] if held else [])


def test_a_gpu_in_quarantine_is_not_waited_for_though_its_pod_has_it() -> None:
    assert awaited("acme", [lease("g1", "Quarantined", "acme", last="acme")]) == {}


def tenancy(name: str, label: str | None = "true") -> Body:
    labels = {} if label is None else {"gpu-clusters.dev/on-demand": label}
    since = "2026-11-27T12:00:00Z"
    return {"metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": since}}


def test_tenancies_that_were_made_on_demand_go_unless_one_holds_gpus_and_declared_ones_stay() -> (
    None
):
    on_demand = map(tenancy, ("initech", "hooli", "promoted"))
    cluster = Cluster().add("tenancies", *on_demand, tenancy("acme", None), tenancy("b", "false"))
    cluster.add("gpuleases", lease("g1", "Leased", "hooli"))
    with pytest.raises(Refused, match=r"tenant hooli.*holds GPUs: lease g1"):
        remove_on_demand(["acme", "promoted"], cluster)
    assert cluster.deleted == []
    cluster.add("gpuleases", lease("g1", "Free"))
    remove_on_demand(["acme", "promoted"], cluster)
    assert sorted(cluster.deleted) == ["hooli", "initech"]
