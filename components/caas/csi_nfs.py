"""csi-driver-nfs on the machines, for volumes that are declared one by one.

Owns: the Helm release. Deliberately does not own: volumes and claims (`TenantStorage`), nor a storage class:
a tenant gets the folders that it was given and no others.

Source: kubernetes-csi/csi-driver-nfs, `charts/v4.13.5/csi-driver-nfs/values.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from components.chart import Chart
from gpuclusters.tenancy.volume import CSI_DRIVER

REPOSITORY: Final = "https://raw.githubusercontent.com/kubernetes-csi/csi-driver-nfs/master/charts"
CHART: Final = "csi-driver-nfs"


@dataclass(frozen=True, kw_only=True)
class CsiNfsArgs:
    """Which chart, and on which machines it mounts."""

    chart: Chart
    node_selector: Mapping[str, str]
    kubelet_root: str
    timeout_seconds: int
    requires: Sequence[pulumi.Resource] = ()
    """What labels the machines."""


class CsiNfs(pulumi.ComponentResource):
    """Owns the Helm release. It is there when the driver runs on every machine."""

    release: pulumi.Resource
    """What volumes depend on."""

    def __init__(
        self, name: str, args: CsiNfsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:CsiNfs", name, None, opts)
        self.release = Release(
            f"{name}-release",
            name=CHART,
            chart=args.chart.reference,
            version=args.chart.version,
            repository_opts=args.chart.repository_options,
            namespace="kube-system",
            values=_values(args),
            timeout=args.timeout_seconds,
            atomic=False,
            max_history=5,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.register_outputs({})


def _values(args: CsiNfsArgs) -> dict[str, Any]:
    """A driver that mounts what is declared and makes nothing by itself."""
    return {
        "driver": {"name": CSI_DRIVER},
        # An inline volume would let a pod name any server and any folder; the policy would let the kubelet
        # change the owner of every file of a shared folder to the group of one pod.
        "feature": {"enableInlineVolume": False, "enableFSGroupPolicy": False},
        "controller": {"enableSnapshotter": False},
        "storageClass": {"create": False},
        "kubeletDir": args.kubelet_root,
        "node": {"nodeSelector": dict(args.node_selector)},
    }
