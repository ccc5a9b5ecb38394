"""A caller's tenancy: whether it may be used, what it allows and what is used of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caas.api.problems import Problem, ProblemError, retry_after
from caas.api.store import Store
from caas.settings import Settings
from gpuclusters.container_api.request import GPU_COUNTS
from gpuclusters.domain.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A tenant's place in the cluster. Quantities are as Kubernetes writes them."""

    tenant: str
    namespace: str
    gpu_resource: str
    ready: bool
    reason: str | None
    """One word why it is not ready."""
    ending: bool
    gpus: int
    gpus_used: int
    sizes: tuple[int, ...]
    images: tuple[str, ...]
    """Where its images come from; empty for any public registry."""
    hard: Mapping[str, str]
    used: Mapping[str, str]


class Tenancies:
    """Finds tenancies in the store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._offered = {p.size for host in settings.hosts for p in host.offered}

    def of(self, tenant: str) -> Tenancy:
        """The tenancy of a tenant.

        Raises:
            ProblemError: it has none here, or nothing is known yet.
        """
        if not self._store.tenancies.synced.is_set():
            raise retry_after(Problem.CLUSTER_AWAY, "the API has just started; try again", 2)
        found = self._store.tenancies.get(tenant)
        if found is None:
            raise ProblemError(
                Problem.NO_TENANCY,
                f"the tenant {tenant} has no tenancy in this cluster; ask its operator for one",
            )
        spec = found["spec"]
        resource = str(spec.get("gpuResource") or self._settings.gpu_resource)
        quota = self._store.quotas.get(spec["quota"].get("name") or "tenant", spec["namespace"])
        status = (quota or {}).get("status") or {}
        hard = status.get("hard") or spec["quota"]["hard"]
        used = status.get("used") or {}
        key = f"requests.{resource}"
        ready, reason = _readiness(found)
        return Tenancy(
            tenant=tenant,
            namespace=spec["namespace"],
            gpu_resource=resource,
            ready=ready,
            reason=reason,
            ending=bool(found["metadata"].get("deletionTimestamp")),
            gpus=int(parse_quantity(str(hard.get(key, "0")))),
            gpus_used=int(parse_quantity(str(used.get(key, "0")))),
            sizes=self._sizes(spec),
            images=tuple(spec.get("images") or ()),
            hard=hard,
            used={name: used.get(name, "0") for name in hard},
        )

    def usable(self, tenant: str) -> Tenancy:
        """The same, if containers may be made in it.

        Raises:
            ProblemError: also if its isolation is not enforced, or it is being removed.
        """
        tenancy = self.of(tenant)
        if tenancy.ending:
            raise ProblemError(
                Problem.TENANCY_ENDING, "the tenancy is being removed; nothing new starts in it"
            )
        if not tenancy.ready:
            raise retry_after(
                Problem.TENANCY_NOT_READY,
                f"not every part of the tenancy's isolation is enforced ({tenancy.reason}); "
                "nothing starts before; try again",
                5,
            )
        return tenancy

    def _sizes(self, spec: Mapping[str, Any]) -> tuple[int, ...]:
        """What the tenancy allows, of what the machines offer."""
        allowed = spec.get("sizes") or ()
        return tuple(sorted(set(allowed) & self._offered & set(GPU_COUNTS)))


def _readiness(tenancy: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Ready counts only if it was said of the tenancy as it is now."""
    status = tenancy.get("status") or {}
    generation = tenancy["metadata"].get("generation")
    for condition in status.get("conditions") or ():
        if condition["type"] != "Ready":
            continue
        seen = condition.get("observedGeneration", status.get("observedGeneration"))
        if seen != generation:
            return False, "Changing"
        if condition["status"] == "True":
            return True, None
        return False, condition.get("reason") or "NotReady"
    return False, "NotSeen"
