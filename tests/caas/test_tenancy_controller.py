"""The tenancy controller on a real API server."""

from pathlib import Path
from typing import Any

import pytest

from caas.controllers import controller, tenancy, tenancy_children
from gpuclusters.tenancy.isolation import POLICY, TENANT_LABEL
from tests.caas.pods import contained
from tests.fixtures.accounts import MERGE, ProgramAccounts
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import (
    GPU,
    ON_DEMAND,
    PREFIX,
    TENANCIES,
    Operator,
    Tenants,
    running,
)
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab


def core(name: str, rest: str = "") -> str:
    return f"/api/v1/namespaces/{name}{rest}"


def policy(name: str, which: str = POLICY) -> str:
    return f"/apis/cilium.io/v2/namespaces/{name}/ciliumnetworkpolicies/{which}"


def there(tenants: Tenants, path: str) -> dict[str, Any]:
    found = tenants.request.get(path)
    assert found, path
    return found


def network_rules(tenants: Tenants, name: str) -> list[str]:
    """What the rules of the tenant's network policy say that they are for."""
    found = tenants.request.get(policy(name)) or {}
    return [rule["description"] for rule in found.get("specs", [])]


CONDITIONS = (
    "Ready NamespaceReady QuotaEnforced LimitsEnforced AccountClosed RolesBound NetworkIsolated "
    "AdmissionEnforced PodSecurityEnforced PodsAllowed"
)


def test_a_tenancy_becomes_ready_when_everything_is_enforced(
    tenants: Tenants, operator: Operator
) -> None:
    name = tenants.make()
    tenants.ready(name)
    found = there(tenants, f"{TENANCIES}/{name}")
    assert [c["type"] for c in found["status"]["conditions"]] == CONDITIONS.split()
    for condition in found["status"]["conditions"]:
        assert (condition["status"], condition["reason"]) == ("True", "Enforced")
        assert condition["observedGeneration"] == found["metadata"]["generation"] == 1
        assert condition["lastTransitionTime"].endswith("Z")
    home = there(tenants, core(name))
    assert home["metadata"]["labels"][TENANT_LABEL] == name
    assert home["metadata"]["annotations"]["gpu-clusters.dev/gpu-sizes"] == "1,2"
    account = there(tenants, core(name, "/serviceaccounts/default"))
    assert account["automountServiceAccountToken"] is False
    quota = there(tenants, core(name, "/resourcequotas/tenant"))
    assert quota["status"]["hard"][f"requests.{GPU}"] == "4"
    assert network_rules(tenants, name) == ["isolate", "allow-dns", "allow-nfs", "deny-api-server"]


QUOTA, ACCOUNT = core("{}", "/resourcequotas/tenant"), core("{}", "/serviceaccounts/default")
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"
OPEN = [{"toEntities": ["all"]}]
NOBODY = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
LOWERED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
DRIFT: dict[str, tuple[str, dict[str, Any] | None]] = {
    "the tenant's label taken away": (core("{}"), {"metadata": {"labels": {TENANT_LABEL: None}}}),
    "Pod Security lowered": (core("{}"), LOWERED),
    "quota narrowed to some pods": (QUOTA, {"spec": {"hard": {"count/pods": "1"}}}),
    "quota deleted": (QUOTA, None),
    "account opened": (ACCOUNT, {"automountServiceAccountToken": True}),
    "policy widened": (policy("{}"), {"specs": [{"endpointSelector": {}, "egress": OPEN}]}),
    "policy unlabelled and widened": (
        policy("{}"),
        {"metadata": {"labels": None}, "spec": {"egress": OPEN}},
    ),
    "policy deleted": (policy("{}"), None),
    "own binding deleted": (f"{BINDINGS}/gpu-clusters-tenant-controllers", None),
    "binding given to another": (f"{BINDINGS}/gpu-clusters-tenant-api", {"subjects": [NOBODY]}),
}
"""What is written over an object, or None to delete it."""


def test_whatever_is_changed_or_deleted_by_hand_is_put_back_with_the_rights_of_the_stack(
    kube_api: KubeCluster, accounts: ProgramAccounts, tenants: Tenants, tmp_path: Path
) -> None:
    name = tenants.make()

    def stated(path: str) -> dict[str, Any]:
        """The object, but for what the server says of it."""
        found = tenants.request.get(path) or {"metadata": {}}
        kept = ("name", "labels", "annotations", "ownerReferences")
        metadata = {key: found["metadata"].get(key) for key in kept}
        return {**found, "metadata": metadata, "status": None}

    def restored(path: str, before: dict[str, Any], what: str) -> None:
        eventually(lambda: stated(path) == before, what=f"{what}: its repair")

    with running(kube_api, tenants.prefix, accounts.controllers.kubeconfig(tmp_path)):
        tenants.ready(name)
        for what, (template, patch) in DRIFT.items():
            path = template.format(name)
            before = stated(path)
            if patch is None:
                assert tenants.request("DELETE", path)[0] == 200
            else:
                tenants.request.merge(path, patch)
            restored(path, before, what)
        # A binding's role cannot be changed: one with another role takes its place.
        place = BINDINGS.format(name)
        theirs = f"{place}/gpu-clusters-tenant-api"
        before = stated(theirs)
        assert tenants.request("DELETE", theirs)[0] == 200
        role = {**before["roleRef"], "name": "view"}
        tenants.request("POST", place, {**before, "roleRef": role})
        restored(theirs, before, "another role")
        tenants.ready(name)
        tenants.declare(name, egress={})
        eventually(
            lambda: network_rules(tenants, name) == ["isolate", "allow-dns", "deny-api-server"]
        )
        status, answer = tenants.request("POST", core(name, "/pods"), contained(name))
        assert status == 201, answer["message"]
        tenants.delete(name)
        eventually(lambda: tenants.get(name) is None, what="the deletion of the Tenancy")


def test_each_part_that_is_not_enforced_keeps_it_unready_and_is_named(
    tenants: Tenants, operator: Operator
) -> None:
    refused = tenants.make(egress={"fqdns": ["example.org"]})
    tenants.ready(refused)
    # As Cilium's operator would say it; the stand-in calls every policy valid only once.
    verdict = {"conditions": [{"type": "Valid", "status": "False", "message": "bad name"}]}
    tenants.request.merge(policy(refused) + "/status", {"status": verdict})
    found = tenants.says(refused, "NetworkIsolated", "network-policy: Cilium refuses it: bad name")
    assert found["reason"] == "Invalid"
    assert tenants.condition(refused)["status"] == "False"
    verdict["conditions"][0]["status"] = "True"
    tenants.request.merge(policy(refused) + "/status", {"status": verdict})
    tenants.ready(refused)

    unlimited = tenants.make(limits=[])
    tenants.says(unlimited, "LimitsEnforced", "LimitRange tenant limits nothing")
    classless = tenants.make(runtimeClasses=["kata-nowhere"])
    tenants.says(classless, "NetworkIsolated", "RuntimeClass kata-nowhere does not exist")
    # What could not be tried is not known.
    assert tenants.condition(classless, "PodSecurityEnforced")["status"] == "Unknown"
    assert tenants.condition(classless)["status"] == "False"


def test_events_tell_when_it_becomes_ready_and_when_it_is_no_more(
    tenants: Tenants, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It speaks of nothing that comes by itself, however slow the machine is.
    monkeypatch.setattr(tenancy, "WAITING_SECONDS", 1000.0)
    monkeypatch.setattr(tenancy, "SILENT_TRIALS", 1000)
    monkeypatch.setattr(tenancy_children, "SYNC_SECONDS", 1000.0)
    name = tenants.make()
    tenants.ready(name)
    # A class that does not exist cannot be waited for.
    tenants.declare(name, runtimeClasses=["kata-nowhere"])
    tenants.says(name, "Ready", "RuntimeClass kata-nowhere does not exist")
    tenants.declare(name)
    tenants.ready(name)
    chosen = f"fieldSelector=regarding.name={name}"
    place = f"/apis/events.k8s.io/v1/namespaces/default/events?{chosen}"

    def told() -> list[dict[str, Any]] | None:
        found = (tenants.request.get(place) or {}).get("items", [])
        return sorted(found, key=lambda e: str(e["eventTime"])) if len(found) >= 3 else None

    events = eventually(told, what="the third event")
    assert [(e["type"], e["reason"]) for e in events] == [
        ("Normal", "Ready"),
        ("Warning", "NotReady"),
        ("Normal", "Ready"),
    ]
    assert "RuntimeClass kata-nowhere does not exist" in events[1]["note"]
    assert {e["reportingController"] for e in events} == {"gpu-clusters.dev/tenancies"}
    assert {e["regarding"]["kind"] for e in events} == {"Tenancy"}


def test_a_change_of_the_spec_is_judged_anew(tenants: Tenants, operator: Operator) -> None:
    name = tenants.make(egress={"internet": True, "nfsCidrs": ["198.51.100.0/28"]})
    tenants.ready(name)
    assert "allow-internet" in network_rules(tenants, name)
    hard = {f"requests.{GPU}": "8", "pods": "20"}
    tenants.declare(name, gpus=8, sizes=[1, 8], quota={"hard": hard}, egress={})
    tenants.ready(name)
    found = there(tenants, f"{TENANCIES}/{name}")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    quota = there(tenants, core(name, "/resourcequotas/tenant"))
    assert quota["spec"]["hard"] == quota["status"]["hard"] == hard
    home = there(tenants, core(name))
    assert home["metadata"]["annotations"]["gpu-clusters.dev/gpu-sizes"] == "1,8"
    assert network_rules(tenants, name) == ["isolate", "allow-dns", "deny-api-server"]


def test_of_tenancies_on_demand_so_many_are_isolated_as_there_may_be_the_oldest_first(
    kube_api: KubeCluster, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenancy, "FOREIGN_SECONDS", 1.0)
    declared, first, second = (tenants.make() for _ in range(3))
    mark = {"metadata": {"labels": {"gpu-clusters.dev/on-demand": "true"}}}
    for name in (first, second):
        status, _ = tenants.request("PATCH", f"{TENANCIES}/{name}", mark, kind=MERGE)
        assert status == 200
    # Of one second, as two copies of the API would make them, the server's ids decide.
    made = [tenants.get(name) or {} for name in (first, second)]
    age = {
        m["metadata"]["name"]: (m["metadata"]["creationTimestamp"], m["metadata"]["uid"])
        for m in made
    }
    older, younger = sorted((first, second), key=age.__getitem__)
    with running(kube_api, tenants.prefix, on_demand=ON_DEMAND):
        tenants.ready(older)
        tenants.ready(declared)
        eventually(lambda: tenants.condition(younger).get("reason") == "TooMany")
        assert tenants.request.get(core(younger)) is None
        tenants.delete(older)
        tenants.ready(younger)


def test_policies_of_an_earlier_version_go_when_the_new_one_is_there(
    tenants: Tenants, operator: Operator
) -> None:
    name = tenants.make()
    tenants.ready(name)
    live = there(tenants, policy(name))
    old = {"name": "allow-dns", "labels": live["metadata"]["labels"]}
    body = {"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": old}
    status, _ = tenants.request("POST", policy(name).rsplit("/", 1)[0], body)
    assert status == 201
    eventually(lambda: tenants.request.get(policy(name, "allow-dns")) is None)
    assert tenants.request.get(policy(name))


def test_a_namespace_of_somebody_else_is_not_touched(tenants: Tenants, operator: Operator) -> None:
    name = tenants.name()
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert tenants.request("POST", "/api/v1/namespaces", body)[0] == 201
    tenants.declare(name)
    found = tenants.says(name, "Ready", "is not the tenant's")
    assert found["reason"] == "Foreign"
    assert tenants.condition(name, "NamespaceReady")["status"] == "False"
    home = there(tenants, core(name))
    assert TENANT_LABEL not in home["metadata"]["labels"]
    assert tenants.request.get(core(name, "/resourcequotas/tenant")) is None
    tenants.delete(name)
    eventually(lambda: tenants.get(name) is None, what="the deletion of the Tenancy")
    assert "deletionTimestamp" not in (tenants.request.get(core(name)) or {})["metadata"]


def test_a_deletion_ends_the_pods_and_the_namespace(tenants: Tenants, operator: Operator) -> None:
    name = tenants.make()
    tenants.ready(name)
    # A pod that takes its time: a finalizer holds it.
    held = contained(name, "work")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    status, answer = tenants.request("POST", core(name, "/pods"), held)
    assert status == 201, answer["message"]
    tenants.delete(name)
    tenants.says(name, "Ready", "1 pods are ending")
    status, answer = tenants.request("POST", core(name, "/pods"), contained(name, "late"))
    assert status == 403
    assert "exceeded quota" in answer["message"]
    # So does an object that somebody else holds: it is told which.
    keeper = {"name": "stuck", "finalizers": ["example.com/stuck"]}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": keeper}
    assert tenants.request("POST", core(name, "/configmaps"), config)[0] == 201
    released = {"metadata": {"finalizers": None}}
    tenants.request.merge(core(name, "/pods/work"), released)
    found = tenants.says(name, "Ready", "example.com/stuck")
    assert found["reason"] == "NamespaceEnding"
    tenants.request.merge(core(name, "/configmaps/stuck"), released)
    eventually(lambda: tenants.get(name) is None, what="the deletion of the Tenancy")
    assert tenants.request.get(core(name)) is None


def test_more_tenancies_than_are_begun_at_once_all_become_ready(
    kube_api: KubeCluster, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenancy, "BEGUN_AT_ONCE", 2)
    monkeypatch.setattr(controller, "BEGUN_SECONDS", 1000.0)
    names = [tenants.make() for _ in range(5)]
    with running(kube_api, tenants.prefix):
        for name in names:
            tenants.ready(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quota": {"hard": {"pods": "1"}}}, "quota.hard must count the GPUs as requests."),
        ({"gpus": 8}, "quota.hard must allow as many GPUs as gpus says"),
        ({"tenant": "other"}, "a Tenancy is named after its tenant"),
        ({"gpus": -1}, "spec.gpus"),
        ({"sizes": [3]}, "sizes are those of partitions"),
        ({"sizes": [8]}, "no size may exceed gpus"),
        ({"namespace": "kube-system"}, "that namespace is the cluster's own"),
        ({"namespace": "Not A Name"}, "spec.namespace"),
        ({"egress": {"nfsCidrs": ["198.51.100.0"]}}, "nfsCidrs are address ranges"),
        ({"egress": {"fqdns": ["https://example.org"]}}, "spec.egress.fqdns"),
        ({"podSecurity": {"enforce": "privileged"}}, "spec.podSecurity.enforce"),
        ({"surprise": 1}, "unknown field"),
    ],
)
def test_the_api_server_itself_refuses_a_tenancy_that_isolates_nothing(
    tenants: Tenants, change: dict[str, Any], said: str
) -> None:
    name = tenants.name()
    body = {
        "apiVersion": "gpu-clusters.dev/v1alpha1",
        "kind": "Tenancy",
        "metadata": {"name": name},
        "spec": tenants.spec(name, **change),
    }
    status, answer = tenants.request("POST", f"{TENANCIES}?fieldValidation=Strict", body)
    assert status in (400, 422)
    assert said in answer["message"]


def test_whose_a_tenancy_is_and_where_cannot_be_changed(tenants: Tenants) -> None:
    name = tenants.make()
    path = f"{TENANCIES}/{name}"
    patch = {"spec": {"namespace": f"{PREFIX}elsewhere"}}
    status, answer = tenants.request("PATCH", path, patch, kind="application/merge-patch+json")
    assert status == 422
    assert "cannot be changed; delete the Tenancy and make another" in answer["message"]
