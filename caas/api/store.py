"""The cluster as the API uses it: watches, bounded calls, a caller's tenancy, and what there is to give."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from caas.api import problems
from caas.cluster import Cluster, ClusterError, Object
from caas.mirror import Mirror
from caas.settings import Gpu, Host, Settings
from gpuclusters.container_api.container import CONTAINER_LABEL, amount
from gpuclusters.container_api.request import GPU_COUNTS, MountAnswer, VolumeMount, faults
from gpuclusters.core.quantity import parse_quantity
from gpuclusters.lease.model import GPU_LEASE, Phase, lease_name
from gpuclusters.lease.placement import BoardView, Outage, outages
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import CLAIM, TENANCY, AccessMode
from gpuclusters.tenancy.objects import NODE, POD, RESOURCE_QUOTA
from gpuclusters.tenancy.on_demand import on_demand
from gpuclusters.tenancy.proof import unready

AT_ONCE = 64
SECONDS = 10.0
"""How long one call may take."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


_RECYCLING = frozenset({Phase.RELEASING, Phase.RESETTING, Phase.SCRUBBING, Phase.VERIFYING})


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


class Store:
    """The kinds that the API reads: containers, tenancies, their quotas and volumes, leases, nodes."""

    def __init__(self, settings: Settings, cluster: Cluster, seconds: float = SECONDS) -> None:
        self._settings, self._cluster = settings, cluster
        self._offered = {p.size for host in settings.hosts for p in host.offered}
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._mirrors = (
            Mirror(POD, labels=CONTAINER_LABEL),
            Mirror(TENANCY),
            Mirror(RESOURCE_QUOTA),
            Mirror(GPU_LEASE, group=_holding_pod),
            Mirror(CLAIM, labels=TENANT_LABEL),
            Mirror(NODE),
        )
        self.pods, self.tenancies, self.quotas, self.leases, self.claims, self.nodes = self._mirrors
        self._one_at_a_time = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._tasks = [asyncio.create_task(self._follow(mirror)) for mirror in self._mirrors]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def alive(self) -> bool:
        """Whether every watch goes on."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def synced(self) -> bool:
        """Whether everything has been seen once."""
        return all(mirror.synced.is_set() for mirror in self._mirrors)

    def outages(self, machines: Iterable[str]) -> dict[str, Outage]:
        """Those of these machines on which nothing new is placed, and why."""
        return outages(machines, self.nodes.within())

    def capacity(self) -> tuple[problems.GpuCapacityAnswer, list[problems.SizeCapacityAnswer]]:
        """All GPUs, and the partitions of each size on offer, smallest first.

        On machines that are away nothing new is placed.
        """
        hosts = self._settings.hosts
        away = self.outages(host.name for host in hosts)
        gpus: list[tuple[Outage | None, str | None]] = []
        sizes: dict[int, Counter[str]] = {}
        for host in hosts:
            phases = {gpu.module: self._phase(host, gpu) for gpu in host.gpus}
            gpus += [(away.get(host.name), phase) for phase in phases.values()]
            view = BoardView.of(host.name, host.offered, phases)
            free_here = "unschedulable" if host.name in away else "free"
            for partition in host.offered:
                count = sizes.setdefault(partition.size, Counter(free=0, unschedulable=0))
                count["total"] += 1
                count[free_here] += view.has_free(partition)
                count["quarantined"] += not view.lost.isdisjoint(partition.modules)
        free = [outage for outage, phase in gpus if phase == Phase.FREE]
        why = Counter(outage.why.value for outage in free if outage is not None)
        of_gpus = problems.GpuCapacityAnswer(
            total=len(gpus),
            free=free.count(None),
            unschedulable=why.total(),
            unschedulable_by=dict(sorted(why.items())),
            recycling=sum(phase in _RECYCLING for _, phase in gpus),
            quarantined=sum(phase == Phase.QUARANTINED for _, phase in gpus),
        )
        return of_gpus, [problems.SizeCapacityAnswer(gpus=n, **sizes[n]) for n in sorted(sizes)]

    def _phase(self, host: Host, gpu: Gpu) -> str | None:
        lease = self.leases.get(lease_name(host.name, gpu.module)) or {}
        return (lease.get("status") or {}).get("phase")

    def leases_of(self, pod: Object) -> list[Object]:
        return list(self.leases.within(str(pod["metadata"].get("uid", ""))).values())

    async def bounded(self, call: Awaitable[T]) -> T:
        """A call to the cluster, of which only some are made at once; it is over when it takes too long."""
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                return await call
        except TimeoutError:
            late = f"the API server did not answer within {self._seconds:g} s"
            raise ClusterError(late, reason="Timeout") from None
        finally:
            if asyncio.iscoroutine(call):
                call.close()

    async def welcome(self, tenant: str) -> None:
        """Make the tenancy of a tenant who has none, where that is wanted and there is room for it."""
        template = self._settings.on_demand
        if template is None or not self.tenancies.synced.is_set() or self.tenancies.get(tenant):
            return
        async with self._one_at_a_time:
            if self.tenancies.get(tenant):
                return  # of another request, while this one waited
            there = [*self.tenancies.all()]
            made = template.tenancy(tenant)
            taken = {one["spec"]["namespace"] for one in there}
            if made is None or made["spec"]["namespace"] in taken:
                unfit = f"the name {tenant} cannot be that of a tenancy on demand; ask the operator for one"
                raise problems.ProblemError(problems.Problem.NO_TENANCY, unfit)
            if len(on_demand(there)) >= template.most:
                full = f"the tenant {tenant} has no tenancy, and all {template.most} on demand are taken"
                raise problems.ProblemError(
                    problems.Problem.NO_TENANCY, f"{full}; ask the operator for one"
                )
            await self._make(tenant, made)

    async def _make(self, tenant: str, made: dict[str, Any]) -> None:
        try:
            self.tenancies.wrote(await self.bounded(self._cluster.create(TENANCY, made)))
        except ClusterError as error:
            _log.warning("the tenancy of %s was not made: %s", tenant, error)
            if error.reason == "AlreadyExists":  # through another copy of this program
                again = "the tenancy is being set up; try again"
                raise problems.ProblemError(problems.Problem.TENANCY_NOT_READY, again) from error
            if problems.is_away(error):
                raise problems.cluster_away() from error
            refused = f"the cluster refuses a tenancy for {tenant}; its operator sees why"
            raise problems.ProblemError(problems.Problem.NO_TENANCY, refused) from error
        _log.info("the tenancy of %s was made on demand", tenant)

    def tenancy(self, tenant: str) -> Tenancy:
        """The tenancy of a tenant; `ProblemError` if it has none here, or nothing is known yet."""
        if not self.tenancies.synced.is_set():
            raise problems.just_started()
        found = self.tenancies.get(tenant)
        if found is None:
            none = f"the tenant {tenant} has no tenancy in this cluster; ask its operator for one"
            raise problems.ProblemError(problems.Problem.NO_TENANCY, none)
        spec = found["spec"]
        resource = str(spec.get("gpuResource") or self._settings.gpu_resource)
        quota = self.quotas.get(spec["quota"].get("name") or "tenant", spec["namespace"])
        status = (quota or {}).get("status") or {}
        hard = status.get("hard") or spec["quota"]["hard"]
        used = status.get("used") or {}
        key = f"requests.{resource}"
        reason = unready(found)
        return Tenancy(
            tenant=tenant,
            namespace=spec["namespace"],
            gpu_resource=resource,
            ready=reason is None,
            reason=reason,
            ending=bool(found["metadata"].get("deletionTimestamp")),
            gpus=int(parse_quantity(str(hard.get(key, "0")))),
            gpus_used=int(parse_quantity(str(used.get(key, "0")))),
            # What the tenancy allows, of what the machines offer.
            sizes=tuple(sorted(set(spec.get("sizes") or ()) & self._offered & set(GPU_COUNTS))),
            images=tuple(spec.get("images") or ()),
            hard=hard,
            used={name: used.get(name, "0") for name in hard},
        )

    def usable(self, tenant: str) -> Tenancy:
        """The same, if containers may be made in it: its isolation is enforced, and it stays."""
        tenancy = self.tenancy(tenant)
        if tenancy.ending:
            ending = "the tenancy is being removed; nothing new starts in it"
            raise problems.ProblemError(problems.Problem.TENANCY_ENDING, ending)
        if not tenancy.ready:
            raise problems.ProblemError(
                problems.Problem.TENANCY_NOT_READY,
                f"not every part of the tenancy's isolation is enforced ({tenancy.reason}); "
                "nothing starts before; try again",
            )
        return tenancy

    def volumes(self, tenancy: Tenancy) -> list[problems.VolumeAnswer]:
        """Its volumes by name. A claim without the tenant's label is not declared for it."""
        claims = self.claims.within(tenancy.namespace)
        return [
            _volume(claim)
            for _, claim in sorted(claims.items())
            if claim["metadata"]["labels"].get(TENANT_LABEL) == tenancy.tenant
        ]

    def mounts(self, tenancy: Tenancy, asked: Sequence[VolumeMount]) -> tuple[MountAnswer, ...]:
        """What a request asks for, checked against what the tenant has and may do with it."""
        if not asked:
            return ()
        wrong = [(f"body.volumes.{place}.{field}", said) for place, field, said in faults(asked)]
        if wrong:
            raise problems.invalid(wrong)
        if not self.claims.synced.is_set():
            raise problems.just_started()
        mine = {volume.name: volume for volume in self.volumes(tenancy)}
        for place, mount in enumerate(asked):
            volume = mine.get(mount.name)
            if volume is None:
                there = ", ".join(mine) or "none"
                said = f"the tenant has no volume {mount.name}; its volumes: {there}"
                wrong.append((f"body.volumes.{place}.name", said))
            elif volume.read_only and mount.read_only is False:
                said = f"the volume {mount.name} can only be read; leave readOnly out"
                wrong.append((f"body.volumes.{place}.readOnly", said))
        if wrong:
            raise problems.invalid(wrong, problems.Problem.VOLUME)
        if waiting := [mount.name for mount in asked if not mine[mount.name].ready]:
            raise problems.ProblemError(
                problems.Problem.VOLUME_NOT_READY,
                f"volumes that are not bound yet: {', '.join(waiting)}; the container would wait with "
                "its GPUs, so try again",
            )
        return tuple(
            MountAnswer(
                name=one.name,
                path=one.path,
                read_only=bool(one.read_only) or mine[one.name].read_only,
            )
            for one in asked
        )

    async def _follow(self, mirror: Mirror) -> None:
        try:
            await mirror.follow(self._cluster)
        except Exception:
            # Seen by `alive`: a program that no longer learns what happens must be started again.
            _log.exception("the watch of %s ended", mirror.kind.plural)
            raise


def _holding_pod(lease: dict[str, Any]) -> str | None:
    holder = (lease.get("status") or {}).get("holder")
    return str(holder["podUid"]) if holder else None


def _volume(claim: Mapping[str, Any]) -> problems.VolumeAnswer:
    metadata, spec, status = claim["metadata"], claim["spec"], claim.get("status") or {}
    return problems.VolumeAnswer(
        name=metadata["name"],
        size_gib=amount((spec.get("resources") or {}).get("requests", {}).get("storage")),
        read_only=spec.get("accessModes") == [AccessMode.READ_ONLY_MANY.kubernetes],
        ready=status.get("phase") == "Bound" and not metadata.get("deletionTimestamp"),
    )
