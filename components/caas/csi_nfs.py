"""csi-driver-nfs on the machines, for volumes that are declared one by one.

Owns: the Helm release. Deliberately does not own: volumes and claims (`TenantStorage`), nor a storage class:
a tenant gets the folders that it was given and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from components.chart import Chart
from gpuclusters.domain import csi_chart


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
            name=csi_chart.RELEASE,
            chart=args.chart.reference,
            version=args.chart.version,
            repository_opts=args.chart.repository_options,
            namespace=csi_chart.NAMESPACE,
            values=csi_chart.values(
                node_selector=args.node_selector, kubelet_root=args.kubelet_root
            ),
            timeout=args.timeout_seconds,
            atomic=False,
            max_history=5,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.register_outputs({})
