"""What the components of a caas cluster declare, without an engine."""

from typing import Any

import pulumi

from components.caas.storage import TenantStorage
from gpuclusters.tenancy.model import Mounter, TenantVolume
from tests.components.recorder import record


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
