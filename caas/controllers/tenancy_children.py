"""Makes a tenant's objects and puts back what was changed or deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError
from caas.controllers.tenancy_mirror import Mirror, Object
from caas.controllers.tenancy_view import TenancyView
from gpuclusters.core.finding import Finding
from gpuclusters.tenancy import objects as tenancy_objects
from gpuclusters.tenancy.isolation import Network
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import (
    MANAGED_LABEL,
    NAMESPACE,
    NETWORK_POLICY,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Child,
)
from gpuclusters.tenancy.programs import Accounts

GRANT_SECONDS = 10.0
"""How long API servers may take to learn of a role that was just bound."""
GRANT_POLL_SECONDS = 0.05

_Key = tuple[str, str, str]


class Children:
    """Applies under one field manager, by force: what a Tenancy says is nobody else's to say."""

    def __init__(
        self,
        cluster: Cluster,
        view: TenancyView,
        network: Network,
        accounts: Accounts,
        manager: str,
    ) -> None:
        self._cluster = cluster
        self._accounts = accounts
        self._view = view
        self._network = network
        self._manager = manager
        # By object: what was applied last, and what the server made of it.
        self._settled: dict[_Key, tuple[Object, Object]] = {}

    async def ensure(self, spec: TenancySpec, uid: str | None) -> Finding | None:
        """Everything as it must be, or why nothing can be done.

        Args:
            spec: the tenancy.
            uid: of the namespace that this tenancy made earlier, if it did.

        Raises:
            ClusterError: an object could not be applied.
        """
        fault = await self._home(spec, uid)
        if fault is not None:
            return fault
        wanted = tenancy_objects.inside(spec, self._network)
        await self._grant(spec)
        await _all([self._put_granted(child) for child in wanted])
        await _all(self._stale(spec, wanted))
        return None

    async def close(self, spec: TenancySpec) -> None:
        """Let no new pod in."""
        await self._grant(spec)
        for child in tenancy_objects.inside(spec, self._network, closing=True):
            if child.kind == RESOURCE_QUOTA:
                await self._put_granted(child)

    async def _grant(self, spec: TenancySpec) -> None:
        """Bind the roles of the API and of this program, without which neither may do anything here."""
        mirror = self._view.children[ROLE_BINDING]
        for child in tenancy_objects.roles(spec, self._accounts):
            live = mirror.get(child.name, spec.namespace)
            if live is not None and live["roleRef"] != child.body["roleRef"]:
                # Kubernetes never changes the role of a binding.
                uid = live["metadata"]["uid"]
                await self._cluster.delete(ROLE_BINDING, child.name, spec.namespace, uid=uid)
            await self._put(child, mirror)

    async def _put_granted(self, child: Child) -> None:
        deadline = time.monotonic() + GRANT_SECONDS
        while True:
            try:
                return await self._put(child, self._view.children[child.kind])
            except ClusterError as error:
                if not error.ungranted or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(GRANT_POLL_SECONDS)

    async def _home(self, spec: TenancySpec, uid: str | None) -> Finding | None:
        child = tenancy_objects.home(spec)
        live = self._view.namespaces.get(child.name)
        if live is None:
            try:
                live = await self._cluster.create(NAMESPACE, child.body, manager=self._manager)
            except ConflictError:
                live = await self._cluster.get(NAMESPACE, child.name)
            if live is None:
                return Finding("tenancy.terminating", f"namespace {child.name} is just going")
            # One whose label was taken away is still ours.
            if not tenancy_objects.is_ours(live, spec.tenant) and live["metadata"]["uid"] != uid:
                return tenancy_objects.foreign(spec)
            self._view.namespaces.offer(live)
        elif not tenancy_objects.is_ours(live, spec.tenant) and live["metadata"]["uid"] != uid:
            return tenancy_objects.foreign(spec)
        if live["metadata"].get("deletionTimestamp"):
            return Finding("tenancy.terminating", tenancy_objects.remains(live))
        await self._put(child, self._view.namespaces)
        return None

    async def _put(self, child: Child, mirror: Mirror) -> None:
        namespace = str(child.body["metadata"].get("namespace", ""))
        key = (child.kind.plural, namespace, child.name)
        live = mirror.get(child.name, namespace)
        before, answered = self._settled.get(key, (None, None))
        known = answered if before == child.body else None
        if live is not None and not tenancy_objects.drifted(child.body, live, known):
            return
        found = await self._made(child) if live is None else await self._applied(child)
        if foreign := tenancy_objects.foreign_fields(child.body, found):
            found = await self._cluster.patch(child.kind, child.name, namespace, foreign)
        self._settled[key] = (dict(child.body), found)
        mirror.offer(found)

    async def _made(self, child: Child) -> Object:
        # Costs the server half of what an apply of something new does. Kubernetes, however, makes
        # the account, as a rule before we come to it.
        if child.kind == SERVICE_ACCOUNT:
            return await self._applied(child)
        try:
            return await self._cluster.create(child.kind, child.body, manager=self._manager)
        except ConflictError:
            return await self._applied(child)

    async def _applied(self, child: Child) -> Object:
        return await self._cluster.apply(child.kind, child.body, manager=self._manager, force=True)

    def _stale(self, spec: TenancySpec, wanted: Sequence[Child]) -> list[Awaitable[None]]:
        """Deletions of what an earlier spec wanted."""
        names = {(child.kind, child.name) for child in wanted}
        return [
            self._cluster.delete(kind, name, spec.namespace, uid=live["metadata"]["uid"])
            for kind in (RESOURCE_QUOTA, NETWORK_POLICY)
            for name, live in self._view.children[kind].within(spec.namespace).items()
            if (kind, name) not in names
            and live["metadata"]["labels"].get(MANAGED_LABEL) == tenancy_objects.MANAGER
        ]


async def _all(work: Sequence[Awaitable[Any]]) -> None:
    """All of it, even if a part fails; then the first failure."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
