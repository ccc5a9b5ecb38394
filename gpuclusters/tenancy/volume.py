"""A tenant's folder on a file server as a pair of objects: a volume, and the only claim that may have it.

Volumes are declared, not made by a storage class: a tenant gets the folder that the operator gave it and no
other. `claimRef` binds the volume to one namespace, an empty storage class keeps any provisioner away, and
the files outlive everything (`Retain`).

Kata: what the kubelet mounts is shared with the VM by virtio-fs, which only the Go runtime does for GPUs;
with the others files are copied once, at start. Source: Kata Containers, docs/Limitations.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gpuclusters.core.ports import ObjectKind

CLAIM = ObjectKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
MOUNT_OPTIONS: Final = ("hard", "nfsvers=4.1", "nosuid", "nodev")
"""`hard`: a server that is away is waited for, instead of writes that are lost; 4.1: one port, 2049, and
sessions; no set-uid programs, no device files of others."""
CSI_DRIVER: Final = "nfs.csi.k8s.io"
"""Name of csi-driver-nfs."""


class AccessMode(StrEnum):
    """What pods may do with a volume."""

    READ_WRITE_MANY = "read-write-many"
    READ_ONLY_MANY = "read-only-many"

    @property
    def kubernetes(self) -> str:
        """As Kubernetes writes it."""
        return {"read-write-many": "ReadWriteMany", "read-only-many": "ReadOnlyMany"}[self.value]


class Mounter(StrEnum):
    """Who in the cluster mounts volumes."""

    KUBELET = "kubelet"
    """The kubelet's own NFS volumes: `mount.nfs` must be on the machines."""
    CSI = "csi"
    """csi-driver-nfs, which brings its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantVolume:
    """One folder of one tenant."""

    tenant: str
    namespace: str
    name: str
    """Of the claim, in the tenant's namespace."""
    server: str
    path: str
    size_gib: int
    mode: AccessMode = AccessMode.READ_WRITE_MANY

    @property
    def volume_name(self) -> str:
        """Of the volume, in the cluster; not the same for two tenants: namespaces are not shared."""
        return f"{self.namespace}.{self.name}"

    def persistent_volume_spec(self, mounter: Mounter) -> dict[str, Any]:
        """`spec` of the PersistentVolume."""
        read_only = self.mode is AccessMode.READ_ONLY_MANY
        if mounter is Mounter.CSI:
            source: dict[str, Any] = {
                "csi": {
                    "driver": CSI_DRIVER,
                    # Names the mount on a machine; two with one handle would share it.
                    "volumeHandle": f"{self.server}#{self.path}#{self.volume_name}",
                    "readOnly": read_only,
                    "volumeAttributes": {"server": self.server, "share": self.path},
                }
            }
        else:
            source = {"nfs": {"server": self.server, "path": self.path, "readOnly": read_only}}
        return {
            "capacity": {"storage": f"{self.size_gib}Gi"},
            "accessModes": [self.mode.kubernetes],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": list(MOUNT_OPTIONS),
            "claimRef": {"namespace": self.namespace, "name": self.name},
            **source,
        }

    def claim_spec(self) -> dict[str, Any]:
        """`spec` of the PersistentVolumeClaim."""
        return {
            "accessModes": [self.mode.kubernetes],
            "storageClassName": "",
            "volumeName": self.volume_name,
            "resources": {"requests": {"storage": f"{self.size_gib}Gi"}},
        }
