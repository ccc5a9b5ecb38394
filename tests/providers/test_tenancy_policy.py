"""A tenant's isolation, proven on a real API server through the SDK's provider process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from gpuclusters.domain.tenancy_resource import crd
from gpuclusters.providers.tenancy_policy import TenancyPolicyProvider
from tests.fixtures.control_plane import KubeCluster
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import UNKNOWN, StepFailed

pytestmark = pytest.mark.lab

QUOTA = {"requests.nvidia.com/pgpu": "4", "pods": "10", "requests.memory": "1024Gi"}
LEVELS = {
    f"pod-security.kubernetes.io/{mode}{suffix}": value
    for mode in ("enforce", "audit", "warn")
    for suffix, value in (("", "restricted"), ("-version", "latest"))
}


@dataclass
class Tenant:
    """A namespace with everything that isolates a tenant, on the shared cluster."""

    cluster: KubeCluster
    name: str

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        if method == "PATCH":
            path += "?fieldManager=test&force=true"
        with self.cluster.api() as api:
            status, answer = api.request(method, path, body, kind)
        return status, json.loads(answer) if answer.startswith(b"{") else {}

    def apply(self, path: str, api_version: str, kind: str, **body: Any) -> None:
        name = path.rsplit("/", 1)[1]
        manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}
        status, answer = self.request("PATCH", path, manifest)
        assert status < 300, answer["message"]

    def policy(self, name: str) -> str:
        return f"/apis/cilium.io/v2/namespaces/{self.name}/ciliumnetworkpolicies/{name}"

    @property
    def admission(self) -> str:
        return f"pods-of-{self.name}"

    def tenancy(self) -> dict[str, Any]:
        status, answer = self.request(
            "GET", f"/apis/gpu-clusters.dev/v1alpha1/tenancies/{self.name}"
        )
        return answer if status == 200 else {}

    def wanted(self, **changes: Any) -> dict[str, Any]:
        return {
            "cluster": "dev",
            "kubeconfig": self.cluster.kubeconfig.read_text(),
            "tenant": self.name,
            "namespace": self.name,
            "spec": {
                "gpus": 4,
                "quota": {"hard": QUOTA},
                "runtimeClasses": [f"kata-{self.name}"],
            },
            "policies": ["isolate"],
            "admission_policy": self.admission,
            "timeout_seconds": 20,
        } | changes


def isolate(tenant: Tenant) -> None:
    root, name = f"/api/v1/namespaces/{tenant.name}", tenant.name
    labels = {"metadata": {"name": name, "labels": LEVELS}}
    tenant.apply(root, "v1", "Namespace", **labels)
    tenant.apply(f"{root}/resourcequotas/tenant", "v1", "ResourceQuota", spec={"hard": QUOTA})
    size = {"cpu": "1", "memory": "1Gi"}
    limits = [{"type": "Container", "default": size, "defaultRequest": size}]
    tenant.apply(f"{root}/limitranges/tenant", "v1", "LimitRange", spec={"limits": limits})
    spec: dict[str, Any] = {"endpointSelector": {}, "egress": [{"toEndpoints": [{}]}]}
    tenant.apply(tenant.policy("isolate"), "cilium.io/v2", "CiliumNetworkPolicy", spec=spec)
    tenant.apply(
        f"/apis/node.k8s.io/v1/runtimeclasses/kata-{name}",
        "node.k8s.io/v1",
        "RuntimeClass",
        handler="kata",
    )
    group = "admissionregistration.k8s.io/v1"
    tenant.apply(
        f"/apis/{group}/validatingadmissionpolicies/{tenant.admission}",
        group,
        "ValidatingAdmissionPolicy",
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": "has(object.spec.runtimeClassName)"}],
        },
    )
    here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    tenant.apply(
        f"/apis/{group}/validatingadmissionpolicybindings/{tenant.admission}",
        group,
        "ValidatingAdmissionPolicyBinding",
        spec={
            "policyName": tenant.admission,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": here},
        },
    )


@pytest.fixture
def tenant(kube_api: KubeCluster, namespace: str) -> Iterator[Tenant]:
    made = Tenant(kube_api, namespace)
    definition = crd()
    path = (
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    )
    made.apply(path, "apiextensions.k8s.io/v1", definition["kind"], spec=definition["spec"])
    while made.request("GET", "/apis/gpu-clusters.dev/v1alpha1/tenancies")[0] != 200:
        time.sleep(0.05)
    yield made
    group = "/apis/admissionregistration.k8s.io/v1"
    for leftover in (
        f"{group}/validatingadmissionpolicybindings/{made.admission}",
        f"{group}/validatingadmissionpolicies/{made.admission}",
        f"/apis/node.k8s.io/v1/runtimeclasses/kata-{made.name}",
        f"/apis/gpu-clusters.dev/v1alpha1/tenancies/{made.name}",
    ):
        made.request("DELETE", leftover)


def test_a_tenancy_is_ready_when_everything_is_enforced(
    tenant: Tenant, start_provider: StartProvider
) -> None:
    provider = start_provider()
    isolate(tenant)
    made = provider.create(TenancyPolicyProvider, tenant.wanted())
    assert made.id == f"dev/{tenant.name}"
    assert made.outputs["ready"] is True
    assert made.outputs["proofs"] == [
        "tenancy",
        "namespace",
        "quota",
        "limit-range",
        "network-policy/isolate",
        "pod-security",
        "admission-policy",
        "allowed-pod",
    ]
    live = tenant.tenancy()
    assert live["spec"]["networkPolicies"] == ["isolate"]
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    (ready,) = live["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Enforced")

    assert provider.read(TenancyPolicyProvider, made).outputs == made.outputs
    assert not provider.diff(TenancyPolicyProvider, made.outputs, tenant.wanted()).changes
    assert provider.create(TenancyPolicyProvider, tenant.wanted()) == made  # a rerun

    provider.delete(TenancyPolicyProvider, made)
    assert tenant.tenancy() == {}
    assert provider.read(TenancyPolicyProvider, made).id == ""
    provider.delete(TenancyPolicyProvider, made)


def test_what_comes_later_is_waited_for(tenant: Tenant, start_provider: StartProvider) -> None:
    timer = threading.Timer(1, isolate, [tenant])
    timer.start()
    made = start_provider().create(TenancyPolicyProvider, tenant.wanted())
    timer.join()
    assert made.outputs["ready"] is True


def test_each_missing_proof_is_named_with_its_reason(
    tenant: Tenant, start_provider: StartProvider
) -> None:
    with pytest.raises(StepFailed) as failed:
        start_provider().create(TenancyPolicyProvider, tenant.wanted(timeout_seconds=1))
    message = str(failed.value)
    for reason in (
        "isolation is not enforced after 1 s",
        "namespace: label pod-security.kubernetes.io/enforce is None, not 'restricted'",
        "quota: ResourceQuota tenant does not exist",
        "limit-range: LimitRange tenant does not exist",
        "network-policy/isolate: it does not exist",
        "pod-security: ",
        "admission-policy: ",
    ):
        assert reason in message
    assert tenant.cluster.url in message
    (ready,) = tenant.tenancy()["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "NotEnforced")


def test_isolation_that_ends_shows_in_a_refresh(
    tenant: Tenant, start_provider: StartProvider
) -> None:
    provider = start_provider()
    isolate(tenant)
    made = provider.create(TenancyPolicyProvider, tenant.wanted())
    tenant.request("DELETE", tenant.policy("isolate"))
    live = provider.read(TenancyPolicyProvider, made)
    assert live.outputs["ready"] is False
    assert "network-policy/isolate" not in live.outputs["proofs"]
    assert provider.diff(TenancyPolicyProvider, live.outputs, tenant.wanted()).changes
    isolate(tenant)
    made.outputs = live.outputs
    assert provider.update(TenancyPolicyProvider, made, tenant.wanted()).outputs["ready"] is True


def test_a_field_of_another_manager_is_not_taken(
    tenant: Tenant, start_provider: StartProvider
) -> None:
    isolate(tenant)
    spec = {"tenant": tenant.name, "namespace": tenant.name, "quota": {"hard": QUOTA}, "gpus": 2}
    path = f"/apis/gpu-clusters.dev/v1alpha1/tenancies/{tenant.name}"
    tenant.apply(path, "gpu-clusters.dev/v1alpha1", "Tenancy", spec=spec)
    with pytest.raises(StepFailed) as failed:
        start_provider().create(TenancyPolicyProvider, tenant.wanted())
    assert 'conflict with "test": .spec.gpus' in str(failed.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quota": {"hard": {"pods": "1"}}}, "quota.hard must count the GPUs as requests."),
        ({"tenant": "other"}, "a Tenancy is named after its tenant"),
        ({"gpus": -1}, "spec.gpus"),
    ],
)
def test_the_api_server_itself_refuses_a_tenancy_that_isolates_nothing(
    tenant: Tenant, change: dict[str, Any], said: str
) -> None:
    spec = {"tenant": tenant.name, "namespace": tenant.name, "quota": {"hard": QUOTA}} | change
    body = {
        "apiVersion": "gpu-clusters.dev/v1alpha1",
        "kind": "Tenancy",
        "metadata": {"name": tenant.name},
        "spec": spec,
    }
    path = f"/apis/gpu-clusters.dev/v1alpha1/tenancies/{tenant.name}"
    status, answer = tenant.request("PATCH", path, body)
    assert status == 422
    assert said in answer["message"]


def test_an_api_server_that_is_not_there_is_named_without_the_kubeconfig(
    tenant: Tenant, start_provider: StartProvider
) -> None:
    kubeconfig = yaml.safe_load(tenant.cluster.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    secret = kubeconfig["users"][0]["user"]["client-key-data"]
    with pytest.raises(StepFailed) as failed:
        start_provider().create(
            TenancyPolicyProvider, tenant.wanted(kubeconfig=yaml.safe_dump(kubeconfig))
        )
    message = str(failed.value)
    assert "API server https://127.0.0.1:1: could not apply Tenancy" in message
    assert "Connection refused" in message
    assert "check that the API server runs" in message
    assert secret not in message


@pytest.mark.parametrize("text", ["top-secret-token: [", "just text", "current-context: x"])
def test_a_broken_kubeconfig_is_refused_without_showing_it(
    start_provider: StartProvider, text: str
) -> None:
    inputs = {
        "cluster": "dev",
        "kubeconfig": text,
        "tenant": "acme",
        "namespace": "acme",
        "spec": {"quota": {"hard": QUOTA}},
    }
    with pytest.raises(StepFailed) as failed:
        start_provider().create(TenancyPolicyProvider, inputs)
    assert str(failed.value).startswith("kubeconfig: could not read it: ")
    assert text not in str(failed.value)


def test_check_leaves_the_unknown_alone_and_never_shows_the_kubeconfig(
    start_provider: StartProvider,
) -> None:
    provider = start_provider()
    inputs = {
        "cluster": "dev",
        "kubeconfig": UNKNOWN,
        "tenant": "acme",
        "namespace": UNKNOWN,
        "spec": {"quota": {"hard": QUOTA}},
    }
    assert provider.check(TenancyPolicyProvider, inputs) == {}
    found = provider.check(
        TenancyPolicyProvider,
        inputs | {"kubeconfig": 17, "tenant": "Acme Corp", "timeout_seconds": 0},
    )
    assert set(found) == {"kubeconfig", "tenant", "timeout_seconds"}
    assert "17" not in found["kubeconfig"]
    known = inputs | {"kubeconfig": "x", "namespace": "acme"}
    wrong = provider.check(TenancyPolicyProvider, known | {"spec": {"quota": {}}})
    assert "quota" in wrong["spec"]
    wrong = provider.check(TenancyPolicyProvider, known | {"spec": {"tenant": "other"}})
    assert "leave out tenant" in wrong["spec"]
