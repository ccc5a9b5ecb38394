"""A tenant's folders on file servers, as volumes that no other tenant can claim, and who mounts them.

Owns no files, which stay when the volume goes, and no storage class: a tenant gets what it was given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import PersistentVolume, PersistentVolumeClaim
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from components.component import Component, Told
from components.kubernetes_objects import after
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import Mounter, TenantVolume


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
