"""A tenant's isolation, proven on a real API server through the SDK's provider process."""

from typing import Any

import pytest

from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import PATIENCE_SECONDS, Operator, Tenants, running
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import UNKNOWN

pytestmark = pytest.mark.lab

QUOTA = {"requests.nvidia.com/pgpu": "4", "pods": "10", "requests.memory": "1024Gi"}

MINIMAL = {
    "cluster": "dev",
    "kubeconfig": "x",
    "tenant": "acme",
    "namespace": "acme",
    "spec": {"quota": {"hard": QUOTA}},
}


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
    name = tenants.name()
    tenancy = start_provider().of("TenancyPolicy", wanted(tenants, name))
    made = tenancy.create()
    assert tenancy.id == f"dev/{name}"
    assert made["ready"] is True
    assert " ".join(made["proofs"]) == (
        "controller namespace quota limit-range service-account roles network-policy "
        "network-baseline network-agents admission-rules pod-security admission-policy allowed-pod"
    )
    live = tenants.get(name)
    assert live
    assert live["status"]["observedGeneration"] == made["observed_generation"] == 1

    # A node that another test has just added has no agent yet, and counts for all tenants.
    eventually(lambda: tenancy.look().outputs == made)
    assert not tenancy.differs()
    assert tenancy.create() == made  # a rerun

    changes = {"spec": tenancy.wanted["spec"] | {"sizes": [1], "egress": {"internet": True}}}
    assert tenancy.differs(**changes)
    assert tenancy.update(**changes)["observed_generation"] == 2
    live = tenants.request.get(policy(name))
    assert live
    assert "allow-internet" in {rule["description"] for rule in live["specs"]}

    tenancy.delete()
    assert tenants.get(name) is None
    assert tenants.request.get(f"/api/v1/namespaces/{name}") is None
    assert tenancy.look().id == ""
    tenancy.delete()


def test_isolation_that_ends_shows_in_a_refresh_and_state_of_an_earlier_version_can_be_deleted(
    kube_api: KubeCluster, tenants: Tenants, start_provider: StartProvider
) -> None:
    name = tenants.name()
    tenancy = start_provider().of("TenancyPolicy", wanted(tenants, name))
    with running(kube_api, tenants.prefix):
        tenancy.create()
    # Nobody puts it back, and the last word of the controller was that all is well.
    tenants.request("DELETE", policy(name))
    live = tenancy.refresh()
    assert live.outputs["ready"] is False
    assert "network-policy" not in live.outputs["proofs"]
    assert tenancy.differs()
    with running(kube_api, tenants.prefix):
        assert tenancy.update()["ready"] is True
        tenancy.made.outputs |= {
            "spec": {"gpus": 4, "quota": {"hard": QUOTA}, "runtimeClasses": ["kata"]},
            "policies": ["isolate"],
            "admission_policy": "gpu-clusters-tenant-pods",
        }
        assert tenancy.differs()
        tenancy.delete()
    assert tenants.get(name) is None


def test_a_field_of_another_manager_is_not_taken(
    tenants: Tenants, start_provider: StartProvider
) -> None:
    tenancy = start_provider().of("TenancyPolicy", wanted(tenants, tenants.make(sizes=[4])))
    tenancy.refused("create", 'conflict with "test": .spec.sizes')


@pytest.mark.parametrize("text", ["top-secret-token: [", "just text", "current-context: x"])
def test_a_broken_kubeconfig_is_refused_without_showing_it(
    start_provider: StartProvider, text: str
) -> None:
    made = start_provider().of("TenancyPolicy", MINIMAL | {"kubeconfig": text})
    message = made.refused("create")
    assert message.startswith("kubeconfig: could not read it: ")
    assert text not in message


def test_what_is_wrong_is_said_in_a_preview_and_never_shows_the_kubeconfig(
    start_provider: StartProvider,
) -> None:
    def wrong(**changes: Any) -> dict[str, str]:
        return start_provider().check("TenancyPolicy", MINIMAL | changes)

    found = wrong(kubeconfig=17, tenant="Acme Corp", namespace=UNKNOWN, timeout_seconds=0)
    assert set(found) == {"kubeconfig", "tenant", "timeout_seconds"}
    assert "17" not in found["kubeconfig"]
    assert "quota" in wrong(spec={"quota": {}})["spec"]
    assert "leave out tenant" in wrong(spec={"tenant": "other"})["spec"]
