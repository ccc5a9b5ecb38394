"""Makes a tenant's objects, puts back what was changed or deleted, and in the end clears them up."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError, Object, namespace_of
from caas.controllers.controller import all_of
from caas.mirror import Mirror
from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE, awaited
from gpuclusters.tenancy import objects as tenancy_objects
from gpuclusters.tenancy.admission import POD_POLICY
from gpuclusters.tenancy.isolation import BASELINE, TENANT_LABEL, Network
from gpuclusters.tenancy.model import FINALIZER, TENANCY, TenancySpec
from gpuclusters.tenancy.objects import (
    ADMISSION_BINDING,
    ADMISSION_POLICY,
    BASELINE_POLICY,
    LIMIT_RANGE,
    MANAGED_LABEL,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    Child,
    is_ours,
    remains,
)
from gpuclusters.tenancy.programs import Accounts
from gpuclusters.tenancy.proof import DryRuns, dry_run_pods, node_view

SHARED = (ADMISSION_POLICY, ADMISSION_BINDING, RUNTIME_CLASS)
NEEDED = (NAMESPACE, ROLE_BINDING, RESOURCE_QUOTA, LIMIT_RANGE, SERVICE_ACCOUNT)
"""Without these everything would be made again."""
TENANTS = (*NEEDED, NETWORK_POLICY)
"""Kinds of objects that carry their tenant's label."""
SYNC_SECONDS = 20.0
"""A kind that cannot be read by then is taken for empty, and its tenancies say what is missing."""
TRIALS_VALID_SECONDS = 300.0
"""How long a proof by dry run is believed where nothing seems to have changed."""


class TenancyView:
    """Mirrors of every kind that matters; tells which tenant a change concerns."""

    def __init__(
        self,
        tenant: Callable[[str], None],
        everybody: Callable[[], None],
        leaving: Callable[[], None],
    ) -> None:
        def child(body: Object) -> None:
            if name := (body["metadata"].get("labels") or {}).get(TENANT_LABEL):
                tenant(name)

        def shared(_body: Object) -> None:
            everybody()

        self._everybody = everybody
        self._nodes_seen: Mapping[str, object] = {}
        mirrors = [
            *(Mirror(kind, changed=child, labels=TENANT_LABEL) for kind in TENANTS),
            Mirror(BASELINE_POLICY, changed=shared, fields=f"metadata.name={BASELINE}"),
            *(Mirror(kind, changed=shared) for kind in SHARED),
            Mirror(NODE, changed=self._node_changed),
            Mirror(GPU_LEASE, changed=lambda _body: leaving()),
        ]
        self.mirrors: Mapping[ObjectKind, Mirror] = {mirror.kind: mirror for mirror in mirrors}

    async def follow(self, cluster: Cluster) -> None:
        async with asyncio.TaskGroup() as group:
            for mirror in self.mirrors.values():
                group.create_task(mirror.follow(cluster))

    async def synced(self) -> None:
        """Wait until everything has been seen once; beyond `SYNC_SECONDS` only for what is `NEEDED`."""
        for kind in NEEDED:
            await self.mirrors[kind].synced.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_SECONDS):
                for mirror in self.mirrors.values():
                    await mirror.synced.wait()

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        return self.mirrors[kind].get(name, namespace)

    def list(self, kind: ObjectKind) -> Sequence[Object]:
        return list(self.mirrors[kind].all())

    def rules_version(self) -> tuple[Any, ...]:
        """Changes whenever a pod that was tried might now be judged otherwise."""
        return tuple(
            (found["metadata"]["uid"], found["metadata"].get("generation"))
            for kind in (ADMISSION_POLICY, ADMISSION_BINDING)
            if (found := self.get(kind, POD_POLICY))
        )

    def _node_changed(self, _body: Object) -> None:
        # Kubelets report every few seconds; most of it concerns nobody.
        seen = {name: node_view(node) for name, node in self.mirrors[NODE].within().items()}
        if seen != self._nodes_seen:
            self._nodes_seen = seen
            self._everybody()


@dataclass(frozen=True, slots=True)
class Tried:
    """The last dry run of a tenant's pods: what proved the isolation, else how often in a row it did not.

    `key` changes whenever a pod might be judged otherwise.
    """

    key: object = None
    dry_runs: DryRuns | None = None
    failures: int = 0
    _at: float = field(default_factory=time.monotonic)

    def of(self, key: object) -> DryRuns | None:
        """What proved the isolation of late, None if that is not known."""
        fresh = self.key == key and time.monotonic() - self._at < TRIALS_VALID_SECONDS
        return self.dry_runs if fresh else None


async def tried(cluster: Cluster, spec: TenancySpec) -> DryRuns:
    """Try the pods now, all at once; `ClusterError` if the server did not come to judge one."""

    async def refusal(pod: Mapping[str, Any]) -> str | None:
        try:
            await cluster.create(POD, pod, dry_run=True)
        except ClusterError as error:
            unable = error.status in (0, 401, 429) or error.status >= 500
            if unable or error.ungranted:
                raise
            return str(error)
        return None

    pods = dry_run_pods(spec)
    answers = await asyncio.gather(*map(refusal, pods.values()))
    return DryRuns(**dict(zip(pods, answers, strict=True)))


GRANT_SECONDS = 10.0
"""How long API servers may take to learn of a role that was just bound."""
GRANT_POLL_SECONDS = 0.05
PODS_SECONDS = 1.0
"""Pods of all tenants are not watched for the few that are to go."""
NAMESPACE_SECONDS = 10.0

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str
    leases: Sequence[str]
    """GPUs that are not scrubbed yet."""
    again: float | None
    """After how many seconds to look; None if a watch will tell."""


@dataclass(eq=False)
class Children:
    """Applies under one field manager, by force: what a Tenancy says is nobody else's to say."""

    cluster: Cluster
    view: TenancyView
    network: Network
    accounts: Accounts
    manager: str
    _settled: dict[_Key, tuple[Object, Object]] = field(default_factory=dict)
    """By object: what was applied last, and what the server made of it."""

    async def ensure(self, spec: TenancySpec, uid: str | None) -> Finding | None:
        """Everything as it must be, or why not; `uid` is of the namespace that was made earlier, if any."""
        if fault := await self._home(spec, uid):
            return fault
        wanted = tenancy_objects.inside(spec, self.network)
        await self._grant(spec)
        await all_of([self._put_granted(child) for child in wanted])
        await all_of(self._stale(spec, wanted))
        return None

    async def remove(self, spec: TenancySpec, tenancy: Object) -> Waiting | None:
        """One step further: no new pod, no pod, no unscrubbed GPU, no namespace; None at the end."""
        finalizers = tenancy["metadata"].get("finalizers") or ()
        if FINALIZER not in finalizers:
            return None
        known = self.view.mirrors[GPU_LEASE]
        seen = known.all() if known.synced.is_set() else await self.cluster.list(GPU_LEASE)
        phases = awaited(spec.tenant, list(seen))
        leases = tuple(phases)
        # A namespace of the same name that is not the tenant's is left alone.
        home = await self.cluster.get(NAMESPACE, spec.namespace)
        ours = home if home and is_ours(home, spec.tenant) else None
        if ours and not ours["metadata"].get("deletionTimestamp"):
            if not await self._closed(spec):
                return Waiting("Closing", "new pods are not yet refused", leases, 0.2)
            if pods := await self._end_pods(spec.namespace):
                return Waiting("PodsEnding", f"{pods} pods are ending", leases, PODS_SECONDS)
        if phases:
            named = ", ".join(f"{name} ({phase})" for name, phase in phases.items())
            unscrubbed = f"GPUs are not yet scrubbed: {named}"
            return Waiting("LeasesNotScrubbed", unscrubbed, leases, None)
        if ours:
            again = NAMESPACE_SECONDS
            if not ours["metadata"].get("deletionTimestamp"):
                uid = ours["metadata"]["uid"]
                await self.cluster.delete(NAMESPACE, spec.namespace, uid=uid)
                again = 0.5
            return Waiting("NamespaceEnding", remains(ours), (), again)
        await self.finalized(tenancy, [name for name in finalizers if name != FINALIZER])
        return None

    async def finalized(self, tenancy: Object, finalizers: Sequence[str]) -> Object:
        """Give the very Tenancy that was read these finalizers, whose list is replaced."""
        metadata = tenancy["metadata"]
        identity = {key: metadata[key] for key in ("uid", "resourceVersion")}
        patch = {"metadata": {**identity, "finalizers": list(finalizers)}}
        return await self.cluster.patch(TENANCY, metadata["name"], "", patch)

    async def _closed(self, spec: TenancySpec) -> bool:
        """Let no new pod in; whether that is enforced."""
        await self._grant(spec)
        (closed, *_) = tenancy_objects.inside(spec, self.network, closing=True)
        await self._put_granted(closed)
        quota = await self.cluster.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace)
        enforced = ((quota or {}).get("status") or {}).get("hard") or {}
        return bool(enforced.get("pods") == "0")

    async def _end_pods(self, namespace: str) -> int:
        """How many pods are still there; all of them have been told to end."""
        pods = await self.cluster.list(POD, namespace)
        for pod in pods:
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self.cluster.delete(POD, metadata["name"], namespace, uid=metadata["uid"])
        return len(pods)

    async def _grant(self, spec: TenancySpec) -> None:
        """Bind the roles of the API and of this program, without which neither may do anything here."""
        mirror = self.view.mirrors[ROLE_BINDING]
        for child in tenancy_objects.roles(spec, self.accounts):
            live = mirror.get(child.name, spec.namespace)
            if live is not None and live["roleRef"] != child.body["roleRef"]:
                # Kubernetes never changes the role of a binding.
                uid = live["metadata"]["uid"]
                await self.cluster.delete(ROLE_BINDING, child.name, spec.namespace, uid=uid)
            await self._put(child, mirror)

    async def _put_granted(self, child: Child) -> None:
        deadline = time.monotonic() + GRANT_SECONDS
        while True:
            try:
                return await self._put(child, self.view.mirrors[child.kind])
            except ClusterError as error:
                if not error.ungranted or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(GRANT_POLL_SECONDS)

    async def _home(self, spec: TenancySpec, uid: str | None) -> Finding | None:
        child = tenancy_objects.home(spec)
        live = self.view.mirrors[NAMESPACE].get(child.name)
        if live is None:
            try:
                live = await self.cluster.create(NAMESPACE, child.body, manager=self.manager)
            except ConflictError:
                live = await self.cluster.get(NAMESPACE, child.name)
            if live is None:
                return Finding("tenancy.terminating", f"namespace {child.name} is just going")
            self.view.mirrors[NAMESPACE].wrote(live)
        # One whose label was taken away is still ours.
        if not is_ours(live, spec.tenant) and live["metadata"]["uid"] != uid:
            return tenancy_objects.foreign(spec)
        if live["metadata"].get("deletionTimestamp"):
            return Finding("tenancy.terminating", remains(live))
        await self._put(child, self.view.mirrors[NAMESPACE])
        return None

    async def _put(self, child: Child, mirror: Mirror) -> None:
        namespace = namespace_of(child.body)
        key = (child.kind.plural, namespace, child.name)
        live = mirror.get(child.name, namespace)
        before, answered = self._settled.get(key, (None, None))
        known = answered if before == child.body else None
        if live is not None and not tenancy_objects.drifted(child.body, live, known):
            return
        # A creation costs the server half of what an apply of something new does. Kubernetes, however, makes
        # the account, as a rule before we come to it.
        found = None
        if live is None and child.kind != SERVICE_ACCOUNT:
            with suppress(ConflictError):
                found = await self.cluster.create(child.kind, child.body, manager=self.manager)
        found = found or await self.cluster.apply(child.kind, child.body, manager=self.manager)
        if foreign := tenancy_objects.foreign_fields(child.body, found):
            found = await self.cluster.patch(child.kind, child.name, namespace, foreign)
        self._settled[key] = (dict(child.body), found)
        mirror.wrote(found)

    def _stale(self, spec: TenancySpec, wanted: Sequence[Child]) -> list[Awaitable[None]]:
        """Deletions of what an earlier spec wanted."""
        names = {(child.kind, child.name) for child in wanted}
        return [
            self.cluster.delete(kind, name, spec.namespace, uid=live["metadata"]["uid"])
            for kind in (RESOURCE_QUOTA, NETWORK_POLICY)
            for name, live in self.view.mirrors[kind].within(spec.namespace).items()
            if (kind, name) not in names
            and live["metadata"]["labels"].get(MANAGED_LABEL) == tenancy_objects.MANAGER
        ]
