"""A tenant's folders on file servers, as volumes that no other tenant can claim, and who mounts them.

Owns no files, which stay when the volume goes, and no storage class: a tenant gets what it was given.
Source: kubernetes-csi/csi-driver-nfs, `charts/v4.13.5/csi-driver-nfs/values.yaml`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import pulumi
from pulumi_kubernetes.core.v1 import PersistentVolume, PersistentVolumeClaim
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from components import helm
from components.component import Component, Told
from components.helm import Chart
from components.kubernetes_objects import after
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import CSI_DRIVER, Mounter, TenantVolume

REPOSITORY: Final = "https://raw.githubusercontent.com/kubernetes-csi/csi-driver-nfs/master/charts"
CHART: Final = "csi-driver-nfs"


def csi_nfs(
    name: str,
    chart: Chart,
    opts: pulumi.ResourceOptions,
    *,
    node_selector: Mapping[str, str],
    kubelet_root: str,
    timeout_seconds: int,
) -> Release:
    """csi-driver-nfs on the machines: it mounts what is declared and makes nothing by itself."""
    values: dict[str, Any] = {
        "driver": {"name": CSI_DRIVER},
        # An inline volume would let a pod name any server and any folder; the policy would let the kubelet
        # change the owner of every file of a shared folder to the group of one pod.
        "feature": {"enableInlineVolume": False, "enableFSGroupPolicy": False},
        "controller": {"enableSnapshotter": False},
        "storageClass": {"create": False},
        "kubeletDir": kubelet_root,
        "node": {"nodeSelector": dict(node_selector)},
    }
    return helm.install(
        f"{name}-release",
        chart,
        opts,
        release=CHART,
        namespace="kube-system",
        values=values,
        timeout_seconds=timeout_seconds,
    )


class TenantStorage(Component, module="caas"):
    volumes: Sequence[TenantVolume]
    mounter: Mounter

    claims: pulumi.Output[Mapping[str, str]] = field(init=False)
    """Name of the volume by name of the claim."""

    def declare(self) -> Told:
        name = self._name
        named = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        again = pulumi.ResourceOptions(replace_on_changes=["spec"])
        claimed = pulumi.ResourceOptions.merge(named, again)
        bound: dict[str, pulumi.Input[str]] = {}
        for volume in self.volumes:
            labels = {TENANT_LABEL: volume.tenant}
            spec: Any = volume.persistent_volume_spec(self.mounter)
            asked: Any = volume.claim_spec()
            made = PersistentVolume(
                f"{name}-{volume.name}-volume",
                metadata=ObjectMetaArgs(name=volume.volume_name, labels=labels),
                spec=spec,
                opts=named,
            )
            claim = PersistentVolumeClaim(
                f"{name}-{volume.name}-claim",
                metadata=ObjectMetaArgs(
                    name=volume.name, namespace=volume.namespace, labels=labels
                ),
                spec=asked,
                opts=after(made, opts=claimed),
            )
            bound[volume.name] = claim.spec.volume_name
        self.claims = pulumi.Output.all(**bound)
        return {"claims": self.claims}
