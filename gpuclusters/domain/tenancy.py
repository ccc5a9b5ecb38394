"""What a tenant may hold: the quota of its namespace and the limits of its containers.

Source: Kubernetes counts extended resources in a ResourceQuota under `requests.` only; `limits.` or the bare
name are accepted and never enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CPU_PER_GPU = 24
MEMORY_GIB_PER_GPU = 192
DISK_GIB_PER_GPU = 128
"""Shares of a machine with 192 cores, 2 TiB of memory and 1.9 TB of disk that leave room for VMs' overhead,
the service VM and images."""
DISK_GIB_PER_CONTAINER = 16
"""What a container gets that states none."""
HUGE_PAGES = "hugepages-1Gi"
SMALL_PAGES = "1Gi"
"""Ordinary memory that a container requests whose VM is of huge pages: page cache of its image."""


@dataclass(frozen=True, slots=True)
class Size:
    """CPU in cores, memory and local disk in GiB."""

    cpu: int
    memory_gib: int
    disk_gib: int

    def resources(self) -> dict[str, str]:
        """As Kubernetes writes it."""
        return {
            "cpu": str(self.cpu),
            "memory": f"{self.memory_gib}Gi",
            "ephemeral-storage": f"{self.disk_gib}Gi",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one tenant may hold at once, VMs' overhead included."""

    gpus: int
    total: Size
    storage_gib: int
    claims: int
    """How many volume claims; their sum is `storage_gib`."""
    default_container: Size
    max_container: Size

    def quota(self, resource_name: str, extra: Mapping[str, str]) -> dict[str, str]:
        """`hard` of the ResourceQuota; services that open a door to the outside are not counted, but none."""
        total = self.total.resources()
        return {
            f"requests.{resource_name}": str(self.gpus),
            **{
                f"{of}.{name}": amount
                for name, amount in total.items()
                for of in ("requests", "limits")
            },
            "requests.storage": f"{self.storage_gib}Gi",
            "persistentvolumeclaims": str(self.claims),
            "services.loadbalancers": "0",
            "services.nodeports": "0",
            **extra,
        }

    def limits(self, *, huge_pages: bool = False) -> list[dict[str, Any]]:
        """`limits` of the LimitRange: without defaults a quota refuses every pod that states none."""
        default = self.default_container.resources()
        asked = default
        if huge_pages:
            default = {**default, HUGE_PAGES: default["memory"]}
            asked = {**default, "memory": SMALL_PAGES}
        return [
            {
                "type": "Container",
                "default": default,
                "defaultRequest": asked,
                "max": self.max_container.resources(),
            }
        ]


def quota_keys(resource_name: str) -> frozenset[str]:
    """The quota entries that this program sets itself."""
    size = Size(1, 1, 1)
    share = Share(
        gpus=1, total=size, storage_gib=1, claims=0, default_container=size, max_container=size
    )
    return frozenset(share.quota(resource_name, {}))
