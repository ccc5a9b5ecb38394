"""A tenant's folders on file servers, as volumes that no other tenant can claim.

Owns: one PersistentVolume and one claim for each. Deliberately does not own: the tenant's namespace, which
its Tenancy makes, nor the files, which stay when the volume goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import PersistentVolume, PersistentVolumeClaim
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.volume import Mounter, TenantVolume


@dataclass(frozen=True, kw_only=True)
class TenantStorageArgs:
    """Which folders, and who mounts them."""

    volumes: Sequence[TenantVolume]
    mounter: Mounter
    requires: Sequence[pulumi.Resource] = ()
    """The tenant, whose namespace the claims are in, and the CSI driver where it mounts."""


class TenantStorage(pulumi.ComponentResource):
    """Volumes and claims of one tenant."""

    claims: pulumi.Output[Mapping[str, str]]
    """Name of the volume by name of the claim."""

    def __init__(
        self, name: str, args: TenantStorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:TenantStorage", name, None, opts)
        bound: dict[str, pulumi.Input[str]] = {}
        for volume in args.volumes:
            labels = {TENANT_LABEL: volume.tenant}
            spec: Any = volume.persistent_volume_spec(args.mounter)
            asked: Any = volume.claim_spec()
            made = PersistentVolume(
                f"{name}-{volume.name}-volume",
                metadata=ObjectMetaArgs(name=volume.volume_name, labels=labels),
                spec=spec,
                opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            )
            claim = PersistentVolumeClaim(
                f"{name}-{volume.name}-claim",
                metadata=ObjectMetaArgs(
                    name=volume.name, namespace=volume.namespace, labels=labels
                ),
                spec=asked,
                opts=pulumi.ResourceOptions(
                    parent=self,
                    depends_on=[made, *args.requires],
                    delete_before_replace=True,
                    replace_on_changes=["spec"],
                ),
            )
            bound[volume.name] = claim.spec.volume_name
        self.claims = pulumi.Output.all(**bound)
        self.register_outputs({"claims": self.claims})
