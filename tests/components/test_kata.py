"""What the components of Kata and of tenants' storage declare, without an engine."""

from typing import Any

import pulumi
import pytest

from components.caas.storage import TenantStorage
from gpuclusters.tenancy.model import AccessMode, Mounter, TenantVolume
from tests.components.recorder import record

VOLUME = TenantVolume(
    tenant="acme",
    namespace="tenant-acme",
    name="datasets",
    server="10.30.0.17",
    path="/export/acme",
    size_gib=500,
)


@pytest.mark.parametrize("mounter", Mounter)
def test_a_volume_can_be_claimed_in_its_tenants_namespace_alone(
    preview: bool, mounter: Mounter
) -> None:
    engine = record(
        lambda: TenantStorage("acme-storage", volumes=[VOLUME], mounter=mounter), preview=preview
    )
    (volume,) = engine.of(":PersistentVolume").values()
    (claim,) = engine.of(":PersistentVolumeClaim").values()
    spec = volume["spec"]
    assert volume["metadata"]["name"] == "tenant-acme.datasets"
    assert spec["claimRef"] == {"namespace": "tenant-acme", "name": "datasets"}
    assert claim["metadata"]["namespace"] == "tenant-acme"
    assert claim["metadata"]["name"] == "datasets"
    assert claim["spec"]["volumeName"] == "tenant-acme.datasets"
    # No provisioner may answer the claim, and the files outlive it.
    assert spec["storageClassName"] == claim["spec"]["storageClassName"] == ""
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["mountOptions"] == ["hard", "nfsvers=4.1", "nosuid", "nodev"]
    assert spec["capacity"] == claim["spec"]["resources"]["requests"] == {"storage": "500Gi"}


def test_the_file_server_stands_where_its_mounter_looks() -> None:
    kubelet = VOLUME.persistent_volume_spec(Mounter.KUBELET)
    assert kubelet["nfs"] == {"server": "10.30.0.17", "path": "/export/acme", "readOnly": False}
    csi = VOLUME.persistent_volume_spec(Mounter.CSI)["csi"]
    assert csi["driver"] == "nfs.csi.k8s.io"
    assert csi["volumeAttributes"] == {"server": "10.30.0.17", "share": "/export/acme"}
    assert csi["volumeHandle"] == "10.30.0.17#/export/acme#tenant-acme.datasets"


def test_a_folder_that_may_only_be_read_is_mounted_so() -> None:
    shared = TenantVolume(
        tenant="acme",
        namespace="tenant-acme",
        name="models",
        server="10.30.0.17",
        path="/export/models",
        size_gib=1,
        mode=AccessMode.READ_ONLY_MANY,
    )
    for mounter in Mounter:
        spec = shared.persistent_volume_spec(mounter)
        assert spec["accessModes"] == ["ReadOnlyMany"] == shared.claim_spec()["accessModes"]
        assert (spec.get("nfs") or spec["csi"])["readOnly"] is True


def test_a_tenant_is_told_its_claims() -> None:
    told: list[Any] = []

    def declare() -> object:
        storage = TenantStorage("acme-storage", volumes=[VOLUME], mounter=Mounter.KUBELET)
        return pulumi.Output.from_input(storage.claims).apply(told.append)

    record(declare)
    assert told == [{"datasets": "tenant-acme.datasets"}]
