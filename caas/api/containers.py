"""What the API does with containers: make, find, list, end. One tenant at a time, never across."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from caas.api.kube import Kube, away, cluster_away
from caas.api.problems import Problem, ProblemError
from caas.api.refusals import refused
from caas.api.store import Store
from caas.api.tenancies import Tenancies, Tenancy
from caas.api.volumes import Volumes
from caas.cluster import ClusterError
from caas.settings import Settings
from gpuclusters.container_api.container import (
    CONTAINER_LABEL,
    POD,
    REQUEST_ANNOTATION,
    Container,
    State,
    identifier,
    pod,
    view,
)
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.domain import image
from gpuclusters.domain.naming import is_dns_label
from gpuclusters.tenancy.isolation import TENANT_LABEL

_TRIES = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """The answer to a request for a container; `replayed` if it had been made before."""

    container: Container
    replayed: bool


class Containers:
    """Containers of all tenants; every method takes the one that it acts for."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        store: Store,
        tenancies: Tenancies,
        volumes: Volumes,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._store = store
        self._tenancies = tenancies
        self._volumes = volumes
        self._being_made: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, tenant: str, request: ContainerRequest, key: str | None) -> Made:
        """Make a container, or give the one that was made with the same key.

        Raises:
            ProblemError: the key belongs to another request; the tenancy is not ready, does not
                allow it, has no more or no such volume; the cluster does not answer.
        """
        container = identifier(tenant, key) if key else f"c-{secrets.token_hex(10)}"
        # Duplicates wait for one another here; those that reach another copy of this program meet
        # at the API server, which has each name once.
        lock = self._locks.setdefault(container, asyncio.Lock())
        async with lock:
            namespace = self._tenancies.of(tenant).namespace
            before = self._store.pods.get(container, namespace)
            if before is not None:
                return Made(self._view(_same(before, request)), replayed=True)
            tenancy = self._tenancies.usable(tenant)
            self._check(tenancy, request)
            self._being_made[tenant] += 1
            try:
                return await self._make(tenancy, container, request, mine=key is None)
            finally:
                self._being_made[tenant] -= 1
                if not self._being_made[tenant]:
                    del self._being_made[tenant]

    async def find(self, tenant: str, container: str) -> dict[str, Any]:
        """The pod of one of the tenant's containers.

        Raises:
            ProblemError: not found, whatever the reason: ended, foreign, never there.
        """
        namespace = self._tenancies.of(tenant).namespace
        found = self._store.pods.get(container, namespace)
        if found is None and is_dns_label(container):
            # It may have been made a moment ago through another copy of this program.
            try:
                found = await self._kube.get(POD, container, namespace)
            except ClusterError as error:
                raise self._failed(error) from error
        if found is None or not _belongs(found, tenant):
            raise ProblemError(Problem.NOT_FOUND, "the tenant has no such container")
        return found

    async def get(self, tenant: str, container: str) -> Container:
        """One container.

        Raises:
            ProblemError: not found.
        """
        return self._view(await self.find(tenant, container))

    def list(self, tenant: str, state: State | None) -> list[Container]:
        """All containers of the tenant, or those in one state, oldest first."""
        namespace = self._tenancies.of(tenant).namespace
        pods = (p for p in self._store.pods.of(namespace).values() if _belongs(p, tenant))
        containers = (self._view(one) for one in pods)
        wanted = (one for one in containers if state is None or one.state is state)
        return sorted(wanted, key=lambda one: (one.created_at, one.id))

    def count(self, tenant: str) -> int:
        """How many containers the tenant has, those that are just being made included."""
        namespace = self._tenancies.of(tenant).namespace
        return len(self._store.pods.of(namespace)) + self._being_made[tenant]

    async def delete(self, tenant: str, container: str) -> Container | None:
        """Begin the end of a container; None if there is none such (any more).

        Raises:
            ProblemError: the cluster does not answer.
        """
        try:
            found = await self.find(tenant, container)
        except ProblemError as error:
            if error.problem is Problem.NOT_FOUND:
                return None
            raise
        metadata = found["metadata"]
        if not metadata.get("deletionTimestamp"):
            try:
                await self._kube.delete(POD, container, metadata["namespace"], metadata["uid"])
            except ClusterError as error:
                # A conflict: that one is gone, and the name has been given anew.
                raise self._failed(error) from error
        ending = {**found, "metadata": {**metadata, "deletionTimestamp": "now"}}
        self._store.pods.changed(found, ending)
        return self._view(ending)

    def _check(self, tenancy: Tenancy, request: ContainerRequest) -> None:
        if request.gpus not in tenancy.sizes:
            sizes = ", ".join(str(size) for size in tenancy.sizes) or "none"
            raise ProblemError(
                Problem.SIZE_NOT_ALLOWED,
                f"a container may have this many GPUs: {sizes} (got {request.gpus})",
                {"allowed": list(tenancy.sizes)},
            )
        if not image.is_allowed(image.full(request.image), tenancy.images):
            raise ProblemError(
                Problem.IMAGE,
                f"{image.allowance(tenancy.images)} (got {request.image})",
                {"allowed": list(tenancy.images)},
            )
        most, now = self._settings.api.max_containers, self.count(tenancy.tenant)
        if now >= most:
            raise ProblemError(
                Problem.TOO_MANY_CONTAINERS,
                f"the tenant has {now} containers of at most {most}, ended ones included; "
                "delete some",
                {"used": now, "allowed": most},
            )

    async def _make(
        self, tenancy: Tenancy, container: str, request: ContainerRequest, *, mine: bool
    ) -> Made:
        body = pod(
            request,
            container=container,
            tenant=tenancy.tenant,
            namespace=tenancy.namespace,
            runtime_class=self._settings.runtime_class,
            gpu_resource=tenancy.gpu_resource,
            huge_pages=self._settings.huge_pages,
            mounts=self._volumes.mounts(tenancy.tenant, tenancy.namespace, request.volumes),
        )
        for attempt in range(1, _TRIES + 1):
            try:
                made = await self._kube.create(POD, body)
                self._store.pods.wrote(made)
                return Made(self._view(made), replayed=False)
            except ClusterError as error:
                if error.reason == "AlreadyExists":
                    before = await self._before(container, tenancy.namespace)
                    if before is not None:
                        # A name by chance exists only if an answer to the creation was lost.
                        return Made(self._view(_same(before, request)), replayed=not mine)
                elif error.reason not in ("Conflict", "Unreachable") or attempt == _TRIES:
                    raise self._failed(error, tenancy, request) from error
                elif error.reason == "Unreachable" and attempt > 1:
                    raise cluster_away() from error
                # Requests that come at once compete for the counters of the quota.
                await asyncio.sleep(0.02 * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
        raise cluster_away()

    async def _before(self, container: str, namespace: str) -> dict[str, Any] | None:
        try:
            return await self._kube.get(POD, container, namespace)
        except ClusterError as error:
            raise self._failed(error) from error

    def _failed(
        self,
        error: ClusterError,
        tenancy: Tenancy | None = None,
        request: ContainerRequest | None = None,
    ) -> ProblemError:
        # Counters of the quota for which others compete again and again refuse nobody.
        undecided = away(error) or error.reason == "Conflict"
        if undecided or tenancy is None or request is None:
            _log.warning("the cluster: %s", error)
            return cluster_away()
        return refused(error, tenancy)

    def _view(self, found: dict[str, Any]) -> Container:
        return view(found, self._store.leases_of(found), gpu_resource=self._settings.gpu_resource)


def _belongs(found: dict[str, Any], tenant: str) -> bool:
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    return labels.get(TENANT_LABEL) == tenant and labels.get(CONTAINER_LABEL) == metadata["name"]


def _same(before: dict[str, Any], request: ContainerRequest) -> dict[str, Any]:
    """The pod that was made before, if it was made for the same request."""
    digest = (before["metadata"].get("annotations") or {}).get(REQUEST_ANNOTATION)
    if digest != request.digest():
        raise ProblemError(
            Problem.KEY_REUSED,
            "the Idempotency-Key was used for a request that said something else; "
            "use a new key for a new container",
        )
    return before
