"""When a tenant's isolation counts as enforced, and what is said when it is not."""

import copy
from typing import Any

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.admission import POD_POLICY
from gpuclusters.tenancy.cluster import (
    ensure_tenancy,
    judge,
    observe_tenancy,
    remove_tenancy,
)
from gpuclusters.tenancy.model import TenancySpec
from tests.fixtures.tables import beside
from tests.unit.tenants.tenant_cluster import Cluster, lease, put

HARD = {"requests.nvidia.com/pgpu": "4", "pods": "10"}


def spec(**changes: Any) -> TenancySpec:
    return TenancySpec.model_validate(
        {
            "tenant": "acme",
            "namespace": "tenant-acme",
            "gpus": 4,
            "quota": {"hard": HARD},
            "runtimeClasses": ["kata"],
        }
        | changes
    )


def condition(status: str, generation: int, message: str = "") -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        "reason": "X",
        "message": message,
        "observedGeneration": generation,
    }


def ready(generation: int) -> dict[str, Any]:
    """What a controller says."""
    return {"observedGeneration": generation, "conditions": [condition("True", generation)]}


KNOWN = beside(__file__, "sound_tenancy.yaml")
SOUND: list[tuple[str, dict[str, Any]]] = [(plural, body) for plural, body in KNOWN["objects"]]


PROGRAMS_POLICIES = [
    body["metadata"]["name"]
    for plural, body in SOUND
    if plural == "validatingadmissionpolicies" and body["metadata"]["name"] != POD_POLICY
]
"""What bounds the accounts of the cluster's own programs."""


def sound() -> Cluster:
    """Where a controller calls every Tenancy ready as soon as it is applied."""
    cluster = Cluster(said=ready)
    for plural, body in copy.deepcopy(SOUND):
        cluster.add(plural, body)
    return cluster


def ensure(cluster: Cluster, wanted: TenancySpec | None = None, seconds: float = 1) -> Any:
    return ensure_tenancy(wanted or spec(), cluster, cluster, timeout_seconds=seconds)


def test_a_sound_tenant_is_ready_at_once() -> None:
    cluster = sound()
    judgement = ensure(cluster)
    assert judgement.ready
    assert judgement.generation == 1
    assert cluster.time == 0
    assert ensure(cluster) == judgement, "a rerun keeps the generation"


def test_what_comes_one_after_the_other_is_waited_for() -> None:
    later = copy.deepcopy(SOUND)
    cluster = Cluster(said=ready, then=lambda one: later and one.add(*later.pop(0)))
    assert ensure(cluster, seconds=60).ready
    # Before the node comes there is none that would need an agent.
    assert cluster.time == pytest.approx((len(SOUND) - 1) / 2)


@pytest.mark.parametrize("fault", KNOWN["faults"], ids=lambda fault: fault["said"])
def test_each_thing_that_is_not_enforced_is_said(fault: dict[str, Any]) -> None:
    cluster = sound()
    put(cluster.objects[tuple(fault["of"])], fault["at"], fault["put"])
    with pytest.raises(Refused, match=fault["said"]):
        ensure(cluster)


@pytest.mark.parametrize("plural", sorted({plural for plural, _ in SOUND} - {"nodes"}))
def test_each_thing_that_does_not_exist_is_said(plural: str) -> None:
    cluster = sound()
    cluster.objects = {k: v for k, v in cluster.objects.items() if k[0] != plural}
    with pytest.raises(Refused, match="does not exist"):
        ensure(cluster)


@pytest.mark.attack(
    by="whoever may delete admission policies",
    tries="free the accounts of the programs, or let others write evidence, unnoticed",
    stopped_by="no tenancy is ready without each policy and its binding, so that no container is let in",
)
@pytest.mark.parametrize("name", PROGRAMS_POLICIES)
@pytest.mark.parametrize(
    "plural", ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
)
def test_no_tenant_is_ready_where_the_programs_are_not_bounded(plural: str, name: str) -> None:
    cluster = sound()
    del cluster.objects[plural, name]
    with pytest.raises(Refused, match=f"{name} does not exist"):
        ensure(cluster)


@pytest.mark.parametrize("change", KNOWN["needs no agent"], ids=str)
def test_a_node_that_takes_no_pod_of_the_tenant_needs_no_agent(change: dict[str, Any]) -> None:
    cluster = sound()
    node = cluster.objects["nodes", "hgx-01"]
    del node["status"]["conditions"][1]
    put(node, change["at"], change["put"])
    assert ensure(cluster).ready


@pytest.mark.parametrize(
    ("trial", "answer", "said"),
    [
        ("host", None, "accepts a pod with the host's network"),
        ("host", "no service account", "not by Pod Security: no service account"),
        ("class", None, f"is {POD_POLICY} bound"),
        ("class", "another policy", f"not by {POD_POLICY}: another policy"),
        ("allowed", "RuntimeClass not found", "keeps all the rules: RuntimeClass not found"),
    ],
)
def test_pods_are_tried_not_only_policies_read(trial: str, answer: str | None, said: str) -> None:
    cluster = sound()
    cluster.refusals[trial] = answer
    with pytest.raises(Refused, match=said):
        ensure(cluster)


def test_a_tenant_who_has_used_up_the_quota_is_still_isolated() -> None:
    cluster = sound()
    cluster.refusals["allowed"] = "pods is forbidden: exceeded quota: tenant, requested: pods=1"
    assert ensure(cluster).ready


def test_amounts_may_be_written_in_other_units() -> None:
    cluster = sound()
    wanted = spec(quota={"hard": HARD | {"requests.memory": "1024Gi", "limits.cpu": "4000m"}})
    live = HARD | {"requests.memory": "1Ti", "limits.cpu": "4"}
    cluster.objects["resourcequotas", "tenant"] |= {
        "spec": {"hard": live},
        "status": {"hard": live},
    }
    assert ensure(cluster, wanted).ready


def test_without_a_controller_it_is_said_who_should_have_acted() -> None:
    cluster = sound()
    cluster.said = None
    with pytest.raises(Refused, match="no controller has looked at the Tenancy") as refused:
        ensure(cluster)
    assert "gpu-clusters-controllers" in str(refused.value)
    cluster.objects["tenancies", "acme"]["status"] = ready(1)
    ensure(cluster)
    with pytest.raises(Refused, match="no controller has looked at the Tenancy's change"):
        ensure(cluster, spec(sizes=[1]))


def test_what_the_controller_says_is_passed_on() -> None:
    cluster = sound()
    cluster.said = None
    with pytest.raises(Refused):
        ensure(cluster)
    said = condition("False", 1, "quota: it is not enforced")
    cluster.objects["tenancies", "acme"]["status"] = {"observedGeneration": 1, "conditions": [said]}
    with pytest.raises(Refused, match="the controller says: quota: it is not enforced"):
        ensure(cluster)


def test_a_refresh_judges_and_changes_nothing() -> None:
    cluster = sound()
    assert observe_tenancy(spec(), cluster) is None
    ensure(cluster)
    before = copy.deepcopy(cluster.objects)
    assert (found := observe_tenancy(spec(), cluster))
    assert found.ready
    other = observe_tenancy(spec(sizes=[2]), cluster)
    assert other
    assert "the Tenancy object has another sizes" in other.missing
    assert cluster.objects == before


def test_the_status_has_one_condition_for_each_part_and_tells_why() -> None:
    cluster = sound()
    ensure(cluster)
    cluster.objects["resourcequotas", "tenant"]["status"]["hard"] = {}
    proofs = judge(spec(), cluster.objects["tenancies", "acme"], cluster).proofs[1:]
    made = {c["type"]: c for c in tenancy_proof.conditions(proofs, 7)}
    assert next(iter(made)) == "Ready"
    assert made["Ready"]["status"] == "False"
    assert made["Ready"]["reason"] == made["QuotaEnforced"]["reason"] == "NotObserved"
    assert made["Ready"]["message"].startswith("quota: the quota controller enforces nothing")
    # Pods are tried only when the rest holds: nothing is known, which is not the same as no.
    assert made["PodSecurityEnforced"]["status"] == "Unknown"
    assert made["NetworkIsolated"]["status"] == "True"
    assert {c["observedGeneration"] for c in made.values()} == {7}


def test_a_condition_keeps_its_time_as_long_as_its_status() -> None:
    old = [{"type": "A", "status": "True", "lastTransitionTime": "1"}]
    same = tenancy_proof.merged([{"type": "A", "status": "True"}], old, "2")
    other = tenancy_proof.merged([{"type": "A", "status": "False"}], old, "2")
    assert (same[0]["lastTransitionTime"], other[0]["lastTransitionTime"]) == ("1", "2")


def test_a_tenant_that_holds_gpus_stays_and_those_of_others_and_free_ones_do_not_keep_it() -> None:
    cluster = sound()
    ensure(cluster)
    cluster.add("gpuleases", lease("l1", "Leased", "acme"), lease("l2", "Leased", "globex"))
    with pytest.raises(Refused, match="still holds GPUs: lease l1"):
        remove_tenancy("acme", cluster)
    assert ("tenancies", "acme") in cluster.objects
    cluster.add("gpuleases", lease("l1", "Free"))
    remove_tenancy("acme", cluster)
    remove_tenancy("acme", cluster)
    assert ("tenancies", "acme") not in cluster.objects
