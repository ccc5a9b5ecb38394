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


def awaited(tenant: str, before: Sequence[str], leases: Sequence[Lease]) -> dict[str, str]:
    """Phase by name of the leases that have yet to be scrubbed.

    A lease loses its holder when it is released, so those that the tenant once held (`before`) are
    followed by name until they are Free or Quarantined. One that another tenant holds was Free since.
    """
    waiting: dict[str, str] = {}
    for lease in leases:
        name, holder, phase = lease["metadata"]["name"], _holder(lease), _phase(lease)
        follows = name in before and holder is None and phase not in _DONE
        if holder == tenant or follows:
            waiting[name] = phase
    return dict(sorted(waiting.items()))


def _holder(lease: Lease) -> str | None:
    status = lease.get("status") or {}
    if status.get("phase") not in HELD:
        return None
    tenant = (status.get("holder") or {}).get("tenant")
    return str(tenant) if tenant else None


def _phase(lease: Lease) -> str:
    return str((lease.get("status") or {}).get("phase", "unknown"))
