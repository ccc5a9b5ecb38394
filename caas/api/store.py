"""What the cluster holds, kept up to date by watches, so that reading costs the API server nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from caas.cluster import Cluster, Event
from gpuclusters.container_api.container import CONTAINER_LABEL, POD
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.lease.nodes import Outage, outages
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NODE
from gpuclusters.tenancy.volume import CLAIM

QUOTA = ObjectKind("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)

Object = dict[str, Any]
Key = tuple[str, str]
_log = logging.getLogger(__name__)


class Cache:
    """The objects of one kind by namespace and name, and by a group of the caller's choice."""

    def __init__(self, group: Callable[[Object], str | None] = lambda _: None) -> None:
        self.synced = asyncio.Event()
        self._group = group
        self._objects: dict[Key, Object] = {}
        self._groups: dict[str, dict[Key, Object]] = {}
        self._latest = 0
        self._unseen: set[Key] = set()

    def get(self, name: str, namespace: str = "") -> Object | None:
        """The object as it was last seen."""
        return self._objects.get((namespace, name))

    def all(self) -> Iterator[Object]:
        """Every object."""
        return iter(self._objects.values())

    def of(self, group: str) -> Mapping[Key, Object]:
        """The objects of one group."""
        return self._groups.get(group, {})

    def take(self, event: Event) -> None:
        """Bring it up to date."""
        if event.kind == "SYNC":
            self._latest = max(self._latest, _version(event.object))
            for key in [k for k in self._unseen if _version_of(self._objects[k]) <= self._latest]:
                # Made and gone again while nobody watched.
                self._remove(key)
            self.synced.set()
            return
        self._latest = max(self._latest, _version_of(event.object))
        known = self._objects.get(_key(event.object))
        if event.kind != "DELETED" and known and _version_of(known) == _version_of(event.object):
            # Our own writing, told back; what is known of it beyond that stays.
            self._unseen.discard(_key(event.object))
            return
        self._remove(_key(event.object))
        if event.kind != "DELETED":
            self._put(event.object)

    def wrote(self, body: Object) -> None:
        """Take in what this program has written itself, so that it reads what it wrote.

        The watch may have been faster: then this is old, and may even be gone again.
        """
        if _version_of(body) > self._latest:
            self._remove(_key(body))
            self._put(body)
            self._unseen.add(_key(body))

    def changed(self, before: Object, after: Object) -> None:
        """Take in what will be heard of in a moment, unless more is known already."""
        known = self._objects.get(_key(before))
        if known is not None and _version_of(known) == _version_of(before):
            self._remove(_key(before))
            self._put(after)

    def _put(self, body: Object) -> None:
        body["metadata"].pop("managedFields", None)
        self._objects[_key(body)] = body
        group = self._group(body)
        if group is not None:
            self._groups.setdefault(group, {})[_key(body)] = body

    def _remove(self, key: Key) -> None:
        self._unseen.discard(key)
        before = self._objects.pop(key, None)
        if before is None or (group := self._group(before)) is None:
            return
        members = self._groups[group]
        del members[key]
        if not members:
            del self._groups[group]


class Store:
    """The kinds that the API reads: containers, tenancies, their quotas and volumes, leases, nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pods = Cache(lambda pod: str(pod["metadata"]["namespace"]))
        self.tenancies = Cache()
        self.quotas = Cache()
        self.leases = Cache(_holding_pod)
        self.claims = Cache(lambda claim: str(claim["metadata"]["namespace"]))
        self.nodes = Cache()
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch as long as the context lasts."""
        follow = (
            self._follow(self.pods, POD, CONTAINER_LABEL),
            self._follow(self.tenancies, TENANCY),
            self._follow(self.quotas, QUOTA),
            self._follow(self.leases, GPU_LEASE),
            self._follow(self.claims, CLAIM, TENANT_LABEL),
            self._follow(self.nodes, NODE),
        )
        self._tasks = [asyncio.create_task(one) for one in follow]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            for task in self._tasks:
                with suppress(asyncio.CancelledError, Exception):
                    await task

    @property
    def alive(self) -> bool:
        """Whether every watch goes on."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def synced(self) -> bool:
        """Whether everything has been seen once."""
        caches = (
            self.pods, self.tenancies, self.quotas, self.leases, self.claims, self.nodes
        )  # fmt: skip
        return all(cache.synced.is_set() for cache in caches)

    def outages(self, machines: Iterable[str]) -> dict[str, Outage]:
        """Those of these machines on which nothing new is placed, and why."""
        return outages(machines, {node["metadata"]["name"]: node for node in self.nodes.all()})

    def leases_of(self, pod: Object) -> list[Object]:
        """The leases that are held for a pod."""
        return list(self.leases.of(str(pod["metadata"].get("uid", ""))).values())

    async def _follow(self, cache: Cache, kind: ObjectKind, labels: str = "") -> None:
        try:
            async for event in self._cluster.watch(kind, labels=labels):
                cache.take(event)
        except Exception:
            # Seen by `alive`: a program that no longer learns what happens must be started again.
            _log.exception("the watch of %s ended", kind.plural)
            raise


def _holding_pod(lease: Object) -> str | None:
    holder = (lease.get("status") or {}).get("holder")
    return str(holder["podUid"]) if holder else None


def _key(body: Object) -> Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version_of(body: Object) -> int:
    return _version(body["metadata"])


def _version(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("resourceVersion") or 0)
