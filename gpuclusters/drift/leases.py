"""Leases of GPUs: one for each, none in quarantine, none past its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuclusters.drift.finding import Finding
from gpuclusters.lease.model import Phase, lease_name

Object = Mapping[str, Any]

_OFFERED = {Phase.FREE, Phase.RESERVED, Phase.ACTIVATING, Phase.LEASED}
"""Phases in which the device plugin announces a GPU as healthy."""
_PATIENCE_SECONDS = 60
"""After its deadline: controllers that are just being replaced take over within this time."""


def findings(wanted: Mapping[str, int], live: Sequence[Object], now: datetime) -> Iterator[Finding]:
    """How leases differ."""
    there = {str(lease["metadata"]["name"]): lease for lease in live}
    names = {
        lease_name(node, module): node for node, n in wanted.items() for module in range(1, n + 1)
    }
    for name, node in sorted(names.items()):
        if name not in there:
            yield Finding("gpu.lease-missing", node, name, "a lease", "no lease")
    for name, lease in sorted(there.items()):
        node = str((lease.get("spec") or {}).get("node") or "")
        if name not in names:
            yield Finding(
                "gpu.lease-unknown",
                node,
                name,
                "no such lease",
                f"a lease of {node or 'no node'}",
                up=False,
            )
            continue
        yield from _lease(node, name, lease.get("status") or {}, now)


def _lease(node: str, name: str, status: Object, now: datetime) -> Iterator[Finding]:
    phase = str(status.get("phase") or "")
    if phase == Phase.QUARANTINED:
        reason = ": ".join(
            filter(None, (str(status.get("reason") or ""), str(status.get("message") or "")))
        )
        since = str(status.get("since") or "an unknown time")
        last = status.get("lastTenant")
        had = f"; last had by {last}" if last else ""
        yield Finding(
            "gpu.lease-quarantined",
            node,
            name,
            "in service",
            f"in quarantine since {since}{had}: {reason or 'no reason'}",
            up=False,
        )
        return
    deadline = _time(status.get("deadline"))
    if deadline is not None and (now - deadline).total_seconds() > _PATIENCE_SECONDS:
        yield Finding(
            "gpu.lease-stuck",
            node,
            name,
            f"out of {phase} by {status['deadline']}",
            f"still {phase}",
            up=False,
        )


def withheld(live: Sequence[Object]) -> Mapping[str, int]:
    """By node, how many GPUs their leases keep from the node's allocatable."""
    found: dict[str, int] = {}
    for lease in live:
        node = str((lease.get("spec") or {}).get("node") or "")
        if (lease.get("status") or {}).get("phase") not in _OFFERED:
            found[node] = found.get(node, 0) + 1
    return found


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
