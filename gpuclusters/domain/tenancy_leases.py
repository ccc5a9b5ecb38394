"""Which GPUs a tenant that is to go still has, or has left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.domain.lease_resource import HELD, Phase

Lease = Mapping[str, Any]

_DONE = frozenset({Phase.FREE, Phase.QUARANTINED})


def held_by(tenant: str, leases: Sequence[Lease]) -> list[str]:
    """Leases that the tenant holds, as "name (phase)"."""
    return sorted(
        f"{lease['metadata']['name']} ({_phase(lease)})"
        for lease in leases
        if _holder(lease) == tenant
    )


def awaited(tenant: str, leases: Sequence[Lease]) -> dict[str, str]:
    """Phase by name of the leases that the tenant holds, or had last and that are not yet scrubbed."""
    waiting = {
        lease["metadata"]["name"]: _phase(lease)
        for lease in leases
        if tenant in (_holder(lease), _left_by(lease))
    }
    return dict(sorted(waiting.items()))


def _holder(lease: Lease) -> str | None:
    status = lease.get("status") or {}
    if status.get("phase") not in HELD:
        return None
    tenant = (status.get("holder") or {}).get("tenant")
    return str(tenant) if tenant else None


def _left_by(lease: Lease) -> str | None:
    """Who had the GPU last, until it is scrubbed."""
    status = lease.get("status") or {}
    if status.get("phase") in _DONE | HELD:
        return None
    tenant = status.get("lastTenant")
    return str(tenant) if tenant else None


def _phase(lease: Lease) -> str:
    return str((lease.get("status") or {}).get("phase", "unknown"))
