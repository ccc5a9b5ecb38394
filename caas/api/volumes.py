"""A tenant's volumes: folders on file servers that the operator declared as claims in its namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caas.api.problems import Problem, ProblemError, retry_after
from caas.api.store import Store
from gpuclusters.container_api.request import Mount, VolumeMount, faults
from gpuclusters.domain.quantity import parse_quantity
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.volume import AccessMode

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Volume:
    """One of them."""

    name: str
    size_gib: float | None
    read_only: bool
    ready: bool
    """Its claim is bound."""


class Volumes:
    """Finds volumes in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, tenant: str, namespace: str) -> list[Volume]:
        """All of a tenant's, by name. A claim without its label is not declared for it."""
        claims = self._store.claims.of(namespace).values()
        mine = (c for c in claims if c["metadata"]["labels"].get(TENANT_LABEL) == tenant)
        return sorted((_volume(claim) for claim in mine), key=lambda volume: volume.name)

    def mounts(
        self, tenant: str, namespace: str, asked: Sequence[VolumeMount]
    ) -> tuple[Mount, ...]:
        """What a request asks for, checked against what the tenant has.

        Raises:
            ProblemError: it has no such volume, may not write to it or have it there, or it cannot be
                mounted yet.
        """
        if not asked:
            return ()
        if wrong := [(f"{place}.{field}", said) for place, field, said in faults(asked)]:
            raise _refused(Problem.INVALID, wrong)
        if not self._store.claims.synced.is_set():
            raise retry_after(Problem.CLUSTER_AWAY, "the API has just started; try again", 2)
        mine = {volume.name: volume for volume in self.of(tenant, namespace)}
        for place, mount in enumerate(asked):
            volume = mine.get(mount.name)
            if volume is None:
                there = ", ".join(mine) or "none"
                said = f"the tenant has no volume {mount.name}; its volumes: {there}"
                wrong.append((f"{place}.name", said))
            elif volume.read_only and mount.read_only is False:
                said = f"the volume {mount.name} can only be read; leave readOnly out"
                wrong.append((f"{place}.readOnly", said))
        if wrong:
            raise _refused(Problem.VOLUME, wrong)
        waiting = [mount.name for mount in asked if not mine[mount.name].ready]
        if waiting:
            raise retry_after(
                Problem.VOLUME_NOT_READY,
                f"volumes that are not bound yet: {', '.join(waiting)}; the container would wait with "
                "its GPUs, so try again",
                10,
            )
        return tuple(
            Mount(one.name, one.path, bool(one.read_only) or mine[one.name].read_only)
            for one in asked
        )


def _refused(problem: Problem, wrong: Sequence[tuple[str, str]]) -> ProblemError:
    errors = [{"field": f"body.volumes.{field}", "message": said} for field, said in wrong]
    detail = "; ".join(f"{one['field']}: {one['message']}" for one in errors)
    return ProblemError(problem, detail, {"errors": errors})


def _volume(claim: Mapping[str, Any]) -> Volume:
    spec, status = claim["spec"], claim.get("status") or {}
    size = (spec.get("resources") or {}).get("requests", {}).get("storage")
    gib = None if size is None else float(parse_quantity(str(size)) / _GIB)
    return Volume(
        name=claim["metadata"]["name"],
        size_gib=int(gib) if gib is not None and gib.is_integer() else gib,
        read_only=spec.get("accessModes") == [AccessMode.READ_ONLY_MANY.kubernetes],
        ready=status.get("phase") == "Bound" and not claim["metadata"].get("deletionTimestamp"),
    )
