"""What the components of Kata and of tenants' storage declare, without an engine."""

from typing import Any

import pulumi
import pytest

from components.caas.kata import KataDeploy
from components.caas.storage import TenantStorage
from components.helm import Chart
from components.host_connection import HostConnection
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


@pytest.fixture(params=[False, True], ids=["up", "preview"])
def preview(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def connection(name: str) -> HostConnection:
    return HostConnection(
        host=name, address=f"{name}.example", port=22, user="ops", host_key="ssh-ed25519 AAAA"
    )


def deploy_args(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "chart": Chart(reference="oci://example.com/kata-deploy", version="4.1.0"),
        "values": {"deploymentMode": "daemonset"},
        "hosts": {name: connection(name) for name in ("hgx-01", "hgx-02")},
        "private_key": None,
        "verification": ["kata-qemu-nvidia-gpu", "/opt/kata"],
        "node_labels": {"nvidia.com/cc.ready.state": "false"},
        "timeout_seconds": 1800,
    }
    return {**values, **changes}


def test_kata_is_a_release_in_a_namespace_that_lets_its_installer_in(preview: bool) -> None:
    engine = record(lambda: KataDeploy("kata", **deploy_args()), preview=preview)
    (namespace,) = engine.of(":Namespace").values()
    assert namespace["metadata"]["name"] == "kata-system"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    (release,) = engine.of(":Release").values()
    assert release["chart"] == "oci://example.com/kata-deploy"
    assert release["version"] == "4.1.0"
    assert release["namespace"] == "kata-system"
    assert release["values"] == {"deploymentMode": "daemonset"}
    assert release["timeout"] == 1800
    assert not release["atomic"]


def test_every_node_gets_the_labels_by_which_it_is_chosen(preview: bool) -> None:
    engine = record(lambda: KataDeploy("kata", **deploy_args()), preview=preview)
    patches = engine.of(":NodePatch")
    assert {name: patch["metadata"]["name"] for name, patch in patches.items()} == {
        "hgx-01-labels": "hgx-01",
        "hgx-02-labels": "hgx-02",
    }
    for patch in patches.values():
        assert patch["metadata"]["labels"] == {"nvidia.com/cc.ready.state": "false"}


def test_nodes_that_register_with_their_labels_are_not_labelled_again() -> None:
    engine = record(lambda: KataDeploy("kata", **deploy_args(node_labels={})))
    assert not engine.of(":NodePatch")


def test_every_machine_is_looked_at_when_kata_is_installed(preview: bool) -> None:
    engine = record(lambda: KataDeploy("kata", **deploy_args()), preview=preview)
    commands = engine.of("remote:Command")
    assert commands.keys() == {"hgx-01-kata", "hgx-02-kata"}
    for command in commands.values():
        assert command["create"] == "sudo -n sh -s -- --wait 600 kata-qemu-nvidia-gpu /opt/kata"
        assert command["stdin"].startswith("#!/bin/sh")
        assert command["connection"]["hostKey"] == "ssh-ed25519 AAAA"


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


@pytest.mark.parametrize("changes", [{"hosts": ...}, {"kernel": "6.8"}])
def test_a_component_takes_the_arguments_of_its_class_and_no_others(changes: Any) -> None:
    given = {k: v for k, v in {**deploy_args(), **changes}.items() if v is not ...}
    (wrong,) = changes
    with pytest.raises(TypeError, match=f"'{wrong}'"):
        record(lambda: KataDeploy("kata", **given))
