"""Tenancies: what counts as drift, what keeps one that is to go, what is told when readiness changes."""

import copy
from typing import Any

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.lease.model import awaited, held_by
from gpuclusters.tenancy.cluster import remove_on_demand
from gpuclusters.tenancy.objects import drifted, foreign_fields
from gpuclusters.tenancy.proof import News, news, not_ready
from tests.unit.tenants.tenant_cluster import Body, Cluster, lease, put

WANTED: dict[str, Any] = {
    "apiVersion": "cilium.io/v2",
    "kind": "CiliumNetworkPolicy",
    "metadata": {"name": "isolate", "labels": {"a": "b"}},
    "spec": {"egress": [{"toEndpoints": [{}]}]},
}


def live() -> dict[str, Any]:
    found = copy.deepcopy(WANTED)
    found["metadata"]["labels"]["other"] = "label"
    found["status"] = {"conditions": []}
    return found


def test_what_is_as_it_was_applied_has_not_drifted() -> None:
    assert not drifted(WANTED, live(), None)


OPEN_BESIDE = (["spec", "ingress"], [{"fromEntities": ["all"]}])
ANOTHER_SPEC = (["specs"], [{"egress": [{"toEntities": ["all"]}]}])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (["spec", "egress", 0, "toCIDR"], ["0.0.0.0/0"]),
        OPEN_BESIDE,
        ANOTHER_SPEC,
        (["metadata", "labels"], {"other": "label"}),
    ],
)
def test_whatever_could_widen_it_is_drift(at: list[Any], value: Any) -> None:
    found = live()
    put(found, at, value)
    assert drifted(WANTED, found, None)
    assert drifted(WANTED, found, live())


def test_what_the_server_filled_in_is_no_drift() -> None:
    found = live()
    found["spec"]["description"] = ""
    assert drifted(WANTED, found, None)
    assert not drifted(WANTED, found, copy.deepcopy(found))


def test_what_others_wrote_beside_us_is_taken_away() -> None:
    found = live()
    put(found, *OPEN_BESIDE)
    put(found, *ANOTHER_SPEC)
    assert foreign_fields(WANTED, found) == {"spec": {"ingress": None}, "specs": None}
    assert foreign_fields(WANTED, live()) == {}


def test_what_others_wrote_into_a_part_of_ours_is_taken_away_too() -> None:
    wanted = {"metadata": {}, "spec": {"endpointSelector": {}, "hard": {"pods": "1"}}}
    answered = {
        "metadata": {},
        "spec": {
            "endpointSelector": {"matchLabels": {"a": "b"}},
            "hard": {"pods": "1", "count/pods": "9"},
        },
    }
    assert foreign_fields(wanted, answered) == {
        "spec": {"endpointSelector": {"matchLabels": None}, "hard": {"count/pods": None}}
    }


def test_an_account_may_have_more_than_we_say() -> None:
    wanted = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    found = wanted | {"imagePullSecrets": [{"name": "x"}]}
    assert not drifted(wanted, found, None)
    assert foreign_fields(wanted, found) == {}
    assert drifted(wanted, found | {"automountServiceAccountToken": True}, None)


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


def told_of(*conditions: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "acme", **metadata}, "status": {"conditions": list(conditions)}}


READY = {"type": "Ready", "status": "True", "reason": "Enforced", "message": ""}
UNREADY = not_ready("Missing", "quota: ResourceQuota tenant does not exist", 1)
OTHER = not_ready("Differs", "quota: it says something else", 1)


IS_READY = News("Ready", "everything that isolates the tenant is enforced", "Normal")
IS_NOT = News("NotReady", "Missing: quota: ResourceQuota tenant does not exist", "Warning")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (told_of(), told_of(READY), IS_READY),
        (told_of(UNREADY), told_of(READY), IS_READY),
        (told_of(READY), told_of(READY), None),
        (told_of(READY), told_of(UNREADY), IS_NOT),
        ({"metadata": {"name": "acme"}}, told_of(UNREADY), IS_NOT),
        (told_of(UNREADY), told_of(OTHER), None),
        (told_of(READY), told_of(), None),
    ],
)
def test_readiness_is_told_when_it_changes_and_not_with_another_reason(
    before: Body, after: Body, told: News | None
) -> None:
    assert news(before, after) == told


def test_a_tenancy_that_is_to_end_warns_nobody() -> None:
    ending = told_of(UNREADY, deletionTimestamp="2026-11-21T00:00:00Z")
    told = news(told_of(READY), ending)
    assert told
    assert told.kind == "Normal"
