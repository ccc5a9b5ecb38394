"""What the components of a caas cluster declare, without an engine."""

from typing import Any

import pulumi

from components.caas.storage import TenantStorage
from components.caas.tenancy import Tenant
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy.model import Mounter, Quota, TenancySpec, TenantVolume
from tests.components.recorder import record


def tenant_args(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "cluster": "test",
        "kubeconfig": "kubeconfig",
        "tenancy": TenancySpec(
            tenant="acme",
            namespace="tenant-acme",
            gpus=4,
            quota=Quota(hard={"requests.nvidia.com/pgpu": "4"}),
        ),
    }
    return {**values, **changes}


def test_a_tenant_pulls_with_a_secret_of_its_own_namespace(preview: bool) -> None:
    credentials = pulumi.Output.secret('{"auths": {}}')
    engine = record(
        lambda: Tenant("acme", **tenant_args(registry_credentials=credentials)), preview=preview
    )
    (made,) = engine.of(":Secret").values()
    assert made["metadata"]["namespace"] == "tenant-acme"
    assert made["metadata"]["name"] == isolation.PULL_SECRET
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    assert made["stringData"] == {".dockerconfigjson": '{"auths": {}}'}


def test_the_kubeconfig_is_a_secret_wherever_it_goes() -> None:
    secret: list[bool] = []

    def declare() -> object:
        tenant = Tenant("acme", **tenant_args(kubeconfig=pulumi.Output.secret("kubeconfig")))
        return tenant.ready.apply(lambda _: secret.append(True))

    engine = record(declare)
    assert secret == [True]
    assert [r.name for r in engine.seen if "kubeconfig" in r.inputs] == ["acme-policy"]


def test_a_tenant_is_told_its_claims() -> None:
    told: list[Any] = []
    volume = TenantVolume(
        tenant="acme",
        namespace="tenant-acme",
        name="datasets",
        server="10.30.0.17",
        path="/export/acme",
        size_gib=500,
    )

    def declare() -> object:
        storage = TenantStorage("acme-storage", volumes=[volume], mounter=Mounter.KUBELET)
        return pulumi.Output.from_input(storage.claims).apply(told.append)

    record(declare)
    assert told == [{"datasets": "tenant-acme.datasets"}]
