"""A tenant's isolation, proven on a real API server through the SDK's provider process."""

from typing import Any

import pytest
import yaml

from gpuclusters.tenancy.resource import TenancyPolicyProvider
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import PATIENCE_SECONDS, Operator, Tenants, running
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import UNKNOWN, StepFailed

pytestmark = pytest.mark.lab

QUOTA = {"requests.nvidia.com/pgpu": "4", "pods": "10", "requests.memory": "1024Gi"}


def wanted(tenants: Tenants, name: str, **changes: Any) -> dict[str, Any]:
    spec = tenants.spec(name)
    del spec["tenant"], spec["namespace"]
    return {
        "cluster": "dev",
        "kubeconfig": tenants.request.cluster.kubeconfig.read_text(),
        "tenant": name,
        "namespace": name,
        "spec": spec,
        "timeout_seconds": PATIENCE_SECONDS,
    } | changes


def policy(name: str, which: str = "isolate") -> str:
    return f"/apis/cilium.io/v2/namespaces/{name}/ciliumnetworkpolicies/{which}"


def test_a_tenancy_is_ready_when_everything_is_enforced(
    tenants: Tenants, operator: Operator, start_provider: StartProvider
) -> None:
    provider = start_provider()
    name = tenants.name()
    inputs = wanted(tenants, name)
    made = provider.create(TenancyPolicyProvider, inputs)
    assert made.id == f"dev/{name}"
    assert made.outputs["ready"] is True
    assert made.outputs["proofs"] == [
        "controller",
        "namespace",
        "quota",
        "limit-range",
        "service-account",
        "roles",
        "network-policy",
        "network-baseline",
        "network-agents",
        "admission-rules",
        "pod-security",
        "admission-policy",
        "allowed-pod",
    ]
    live = tenants.get(name)
    assert live
    assert live["status"]["observedGeneration"] == made.outputs["observed_generation"] == 1

    # A node that another test has just added has no agent yet, and counts for all tenants.
    eventually(lambda: provider.read(TenancyPolicyProvider, made).outputs == made.outputs)
    assert not provider.diff(TenancyPolicyProvider, made.outputs, inputs).changes
    assert provider.create(TenancyPolicyProvider, inputs) == made  # a rerun

    changed = inputs | {"spec": inputs["spec"] | {"sizes": [1], "egress": {"internet": True}}}
    assert provider.diff(TenancyPolicyProvider, made.outputs, changed).changes
    updated = provider.update(TenancyPolicyProvider, made, changed)
    assert updated.outputs["observed_generation"] == 2
    live = tenants.request.get(policy(name))
    assert live
    assert "allow-internet" in {rule["description"] for rule in live["specs"]}
    made.outputs = updated.outputs

    provider.delete(TenancyPolicyProvider, made)
    assert tenants.get(name) is None
    assert tenants.request.get(f"/api/v1/namespaces/{name}") is None
    assert provider.read(TenancyPolicyProvider, made).id == ""
    provider.delete(TenancyPolicyProvider, made)


def test_isolation_that_ends_shows_in_a_refresh(
    kube_api: KubeCluster, tenants: Tenants, start_provider: StartProvider
) -> None:
    provider = start_provider()
    name = tenants.name()
    with running(kube_api, tenants.prefix):
        made = provider.create(TenancyPolicyProvider, wanted(tenants, name))
    # Nobody puts it back, and the last word of the controller was that all is well.
    tenants.request("DELETE", policy(name))
    live = provider.read(TenancyPolicyProvider, made)
    assert live.outputs["ready"] is False
    assert "network-policy" not in live.outputs["proofs"]
    assert provider.diff(TenancyPolicyProvider, live.outputs, wanted(tenants, name)).changes
    made.outputs = live.outputs
    with running(kube_api, tenants.prefix):
        updated = provider.update(TenancyPolicyProvider, made, wanted(tenants, name))
    assert updated.outputs["ready"] is True


def test_state_of_an_earlier_version_can_still_be_deleted(
    tenants: Tenants, operator: Operator, start_provider: StartProvider
) -> None:
    provider = start_provider()
    name = tenants.name()
    made = provider.create(TenancyPolicyProvider, wanted(tenants, name))
    made.outputs |= {
        "spec": {"gpus": 4, "quota": {"hard": QUOTA}, "runtimeClasses": ["kata"]},
        "policies": ["isolate"],
        "admission_policy": "gpu-clusters-tenant-pods",
    }
    assert provider.diff(TenancyPolicyProvider, made.outputs, wanted(tenants, name)).changes
    provider.delete(TenancyPolicyProvider, made)
    assert tenants.get(name) is None


def test_a_field_of_another_manager_is_not_taken(
    tenants: Tenants, start_provider: StartProvider
) -> None:
    name = tenants.make(sizes=[4])
    with pytest.raises(StepFailed) as failed:
        start_provider().create(TenancyPolicyProvider, wanted(tenants, name))
    assert 'conflict with "test": .spec.sizes' in str(failed.value)


def test_an_api_server_that_is_not_there_is_named_without_the_kubeconfig(
    tenants: Tenants, start_provider: StartProvider
) -> None:
    name = tenants.name()
    kubeconfig = yaml.safe_load(tenants.request.cluster.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    secret = kubeconfig["users"][0]["user"]["client-key-data"]
    with pytest.raises(StepFailed) as failed:
        start_provider().create(
            TenancyPolicyProvider,
            wanted(tenants, name, kubeconfig=yaml.safe_dump(kubeconfig)),
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


def test_what_is_wrong_is_said_in_a_preview_and_never_shows_the_kubeconfig(
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
