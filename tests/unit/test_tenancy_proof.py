"""What counts as enforced, and what is said when it is not."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.quantity import parse_quantity, same_quantities
from gpuclusters.domain.reconcile_tenancy import (
    TenancyInputs,
    ensure_tenancy,
    observe_tenancy,
    remove_tenancy,
)
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.tenancy_resource import TenancySpec, tenancy_object

HARD = {"requests.nvidia.com/pgpu": "4", "pods": "10"}


def spec(**changes: Any) -> TenancySpec:
    return TenancySpec.model_validate(
        {
            "tenant": "acme",
            "namespace": "tenant-acme",
            "quota": {"hard": HARD},
            "networkPolicies": ["isolate"],
            "runtimeClasses": ["kata"],
            "admissionPolicy": "tenant-pods",
        }
        | changes
    )


@dataclass
class Cluster:
    """Objects in memory; pods are judged by what a sound cluster would answer."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, str | None] = field(default_factory=dict)
    place: str = "API server https://192.0.2.9:6443"
    time: float = 0.0
    later: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        return self.objects.get((kind.plural, name))

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        return [o for (plural, _), o in self.objects.items() if plural == kind.plural]

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        key = (kind.plural, body["metadata"]["name"])
        old = self.objects.get(key, {"metadata": {"generation": 0}})
        new = {**old, **copy.deepcopy(dict(body))}
        changed = old.get("spec") != body["spec"]
        generation = old["metadata"]["generation"] + int(changed)
        new["metadata"] = {**body["metadata"], "generation": generation}
        self.objects[key] = new
        return new

    def apply_status(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        found = self.objects[kind.plural, body["metadata"]["name"]]
        found["status"] = body["status"]
        return found

    def delete(self, kind: ObjectKind, name: str) -> None:
        self.objects.pop((kind.plural, name), None)

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        pod = body["spec"]
        if pod.get("hostNetwork"):
            return self.refusals.get("host", 'violates PodSecurity "restricted:latest"')
        if "runtimeClassName" not in pod:
            return self.refusals.get("class", "ValidatingAdmissionPolicy 'tenant-pods' denied")
        return self.refusals.get("allowed")

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.later:
            plural, made = self.later.pop(0)
            self.objects[plural, made["metadata"]["name"]] = made


NAMESPACE: dict[str, Any] = {
    "metadata": {"name": "tenant-acme", "labels": spec().pod_security.labels()},
    "status": {"phase": "Active"},
}
QUOTA: dict[str, Any] = {
    "metadata": {"name": "tenant"},
    "spec": {"hard": HARD},
    "status": {"hard": HARD},
}
LIMITS: dict[str, Any] = {
    "metadata": {"name": "tenant"},
    "spec": {"limits": [{"type": "Container"}]},
}
POLICY: dict[str, Any] = {
    "metadata": {"name": "isolate", "generation": 2},
    "status": {"conditions": [{"type": "Valid", "status": "True"}]},
}
SOUND: list[tuple[str, dict[str, Any]]] = [
    ("namespaces", NAMESPACE),
    ("resourcequotas", QUOTA),
    ("limitranges", LIMITS),
    ("ciliumnetworkpolicies", POLICY),
]


def sound() -> Cluster:
    made = {(plural, o["metadata"]["name"]): copy.deepcopy(o) for plural, o in SOUND}
    return Cluster(objects=made)


def ensure(cluster: Cluster, wanted: TenancySpec | None = None, seconds: float = 1) -> Any:
    return ensure_tenancy(wanted or spec(), cluster, cluster, timeout_seconds=seconds)


def test_a_sound_tenant_is_ready_at_once() -> None:
    cluster = sound()
    judgement = ensure(cluster)
    assert judgement.ready
    assert judgement.generation == 1
    assert cluster.time == 0
    assert cluster.objects["tenancies", "acme"]["status"]["conditions"][0]["status"] == "True"


def test_a_rerun_keeps_the_generation() -> None:
    cluster = sound()
    assert ensure(cluster) == ensure(cluster)


def test_what_comes_one_after_the_other_is_waited_for() -> None:
    cluster = Cluster(later=copy.deepcopy(SOUND))
    assert ensure(cluster, seconds=60).ready
    assert cluster.time == pytest.approx(2)


@pytest.mark.parametrize(
    ("plural", "name", "path", "value", "said"),
    [
        ("namespaces", "tenant-acme", ["status", "phase"], "Terminating", "is Terminating"),
        (
            "namespaces",
            "tenant-acme",
            ["metadata", "labels", "pod-security.kubernetes.io/enforce"],
            "privileged",
            "'privileged', not 'restricted'",
        ),
        ("resourcequotas", "tenant", ["spec", "hard"], {"pods": "10"}, "says pods=10"),
        ("resourcequotas", "tenant", ["status", "hard"], {}, "enforces nothing so far"),
        ("limitranges", "tenant", ["spec", "limits"], [], "limits nothing"),
        ("ciliumnetworkpolicies", "isolate", ["status", "conditions"], [], "not judged it yet"),
        (
            "ciliumnetworkpolicies",
            "isolate",
            ["status", "conditions", 0],
            {"type": "Valid", "status": "False", "message": "bad selector"},
            "Cilium refuses it: bad selector",
        ),
        (
            "ciliumnetworkpolicies",
            "isolate",
            ["status", "conditions", 0],
            {"type": "Valid", "status": "True", "observedGeneration": 1},
            "older version",
        ),
    ],
)
def test_each_thing_that_is_not_enforced_is_said(
    plural: str, name: str, path: list[Any], value: Any, said: str
) -> None:
    cluster = sound()
    at: Any = cluster.objects[plural, name]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(RefusalError, match=said):
        ensure(cluster)
    status = cluster.objects["tenancies", "acme"]["status"]
    assert status["conditions"][0]["status"] == "False"


@pytest.mark.parametrize("plural", [plural for plural, _ in SOUND])
def test_each_thing_that_does_not_exist_is_said(plural: str) -> None:
    cluster = sound()
    cluster.objects = {k: v for k, v in cluster.objects.items() if k[0] != plural}
    with pytest.raises(RefusalError, match="does not exist"):
        ensure(cluster)


@pytest.mark.parametrize(
    ("trial", "answer", "said"),
    [
        ("host", None, "accepts a pod with the host's network"),
        ("host", "no service account", "not by Pod Security: no service account"),
        ("class", None, "is tenant-pods bound"),
        ("class", "another policy", "not by tenant-pods: another policy"),
        ("allowed", "RuntimeClass not found", "keeps all the rules: RuntimeClass not found"),
    ],
)
def test_pods_are_tried_not_only_policies_read(trial: str, answer: str | None, said: str) -> None:
    cluster = sound()
    cluster.refusals[trial] = answer
    with pytest.raises(RefusalError, match=said):
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


def test_a_refresh_judges_and_changes_nothing() -> None:
    cluster = sound()
    assert observe_tenancy(spec(), cluster) is None
    ensure(cluster)
    before = copy.deepcopy(cluster.objects)
    assert (found := observe_tenancy(spec(), cluster))
    assert found.ready
    other = observe_tenancy(spec(gpus=2), cluster)
    assert other
    assert "the Tenancy object has another gpus" in other.missing
    assert cluster.objects == before


@pytest.mark.parametrize("phase", ["Reserved", "Leased", "Scrubbing", "Quarantined", None])
def test_a_tenant_that_holds_gpus_stays(phase: str | None) -> None:
    cluster = sound()
    ensure(cluster)
    status = {"status": {"phase": phase}} if phase else {}
    cluster.objects["gpuleases", "l1"] = {
        "metadata": {"name": "l1"},
        "spec": {"tenant": "acme"},
        **status,
    }
    with pytest.raises(RefusalError, match="still holds GPUs: lease l1"):
        remove_tenancy("acme", cluster)
    assert ("tenancies", "acme") in cluster.objects


def test_free_leases_and_those_of_others_do_not_keep_a_tenant() -> None:
    cluster = sound()
    ensure(cluster)
    for name, tenant, phase in (("l1", "acme", "Free"), ("l2", "globex", "Leased")):
        cluster.objects["gpuleases", name] = {
            "metadata": {"name": name},
            "spec": {"tenant": tenant},
            "status": {"phase": phase},
        }
    remove_tenancy("acme", cluster)
    remove_tenancy("acme", cluster)
    assert ("tenancies", "acme") not in cluster.objects


def test_the_object_is_named_after_its_tenant_and_has_no_empty_fields() -> None:
    made = tenancy_object(spec(admissionPolicy=None))
    assert made["metadata"]["name"] == "acme"
    assert "admissionPolicy" not in made["spec"]
    assert made["spec"]["gpuResource"] == "nvidia.com/pgpu"


def test_inputs_may_not_say_the_same_thing_twice() -> None:
    given = {
        "cluster": "dev",
        "kubeconfig": "x",
        "tenant": "acme",
        "namespace": "tenant-acme",
        "spec": {"quota": {"hard": HARD}},
    }
    assert TenancyInputs.model_validate(given).tenancy().tenant == "acme"
    for extra in ("tenant", "namespace", "networkPolicies", "admission_policy"):
        with pytest.raises(ValidationError, match="leave out"):
            TenancyInputs.model_validate(given | {"spec": {"quota": {"hard": HARD}, extra: "x"}})


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("10Gi", 10 * 2**30), ("500m", "0.5"), ("1e3", 1000), ("2k", 2000), ("1.5", "1.5")],
)
def test_quantities_are_numbers(text: str, value: int | str) -> None:
    assert parse_quantity(text) == Decimal(value)


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        parse_quantity("four")
    assert not same_quantities({"a": "1"}, {"a": "1", "b": "1"})
