"""What the cluster holds of the kinds that tenancies are made of, kept up to date by watches."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from caas.cluster import Cluster
from gpuclusters.domain.ports import ObjectKind

Object = dict[str, Any]
Changed = Callable[[Object], None]


class Mirror:
    """The objects of one kind that a selector chooses."""

    def __init__(
        self, kind: ObjectKind, changed: Changed, *, labels: str = "", fields: str = ""
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self._changed = changed
        self._labels = labels
        self._fields = fields
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)

    async def follow(self, cluster: Cluster) -> None:
        """Keep up to date until cancelled; what was known before is forgotten."""
        self._objects.clear()
        async for kind, body in cluster.watch(self.kind, labels=self._labels, fields=self._fields):
            if kind == "SYNC":
                self.synced.set()
            elif kind == "DELETED":
                self._forget(body)
                self._changed(body)
            elif self.offer(body):
                self._changed(body)

    def offer(self, body: Object) -> bool:
        """Take an object in if it is newer than what is known."""
        metadata = body["metadata"]
        known = self.get(metadata["name"], metadata.get("namespace", ""))
        # Two objects of one name have another uid; versions of one count upwards.
        if known and known["metadata"]["uid"] == metadata["uid"] and _age(known) >= _age(body):
            return False
        self._objects[metadata.get("namespace", "")][metadata["name"]] = body
        return True

    def get(self, name: str, namespace: str = "") -> Object | None:
        """The object as last seen."""
        return self._objects.get(namespace, {}).get(name)

    def within(self, namespace: str = "") -> Mapping[str, Object]:
        """All of a namespace by name; of a cluster-scoped kind, all."""
        return self._objects.get(namespace, {})

    def _forget(self, body: Object) -> None:
        metadata = body["metadata"]
        known = self.get(metadata["name"], metadata.get("namespace", ""))
        if known and known["metadata"]["uid"] == metadata["uid"]:
            del self._objects[metadata.get("namespace", "")][metadata["name"]]
            if not self._objects[metadata.get("namespace", "")]:
                del self._objects[metadata.get("namespace", "")]


def _age(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])
