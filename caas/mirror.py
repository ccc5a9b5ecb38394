"""What the cluster holds of one kind, kept up to date by a watch: reading it costs the server nothing."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from caas.cluster import Cluster, Event, Object, namespace_of, version_of
from gpuclusters.core.ports import ObjectKind

Key = tuple[str, str]


class Mirror:
    """The objects of one kind that a selector by labels or fields chooses.

    `changed` is told of each object that was made, changed or deleted, but not of what `wrote` took in;
    `group` says by what `within` finds objects (None: by nothing).
    """

    def __init__(
        self,
        kind: ObjectKind,
        *,
        labels: str = "",
        fields: str = "",
        changed: Callable[[Object], None] = lambda _: None,
        group: Callable[[Object], str | None] = namespace_of,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self._labels = labels
        self._fields = fields
        self._changed = changed
        self._group = group
        self._forget_all()

    def _forget_all(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._groups: dict[str, dict[str, Object]] = {}
        self._latest = 0
        self._unseen: set[Key] = set()

    async def follow(self, cluster: Cluster) -> None:
        """Keep up to date until cancelled; what was known before is forgotten."""
        self._forget_all()
        async for event in cluster.watch(self.kind, labels=self._labels, fields=self._fields):
            self.take(event)

    def get(self, name: str, namespace: str = "") -> Object | None:
        return self._objects.get((namespace, name))

    def all(self) -> Iterator[Object]:
        return iter(self._objects.values())

    def within(self, group: str = "") -> Mapping[str, Object]:
        return self._groups.get(group, {})

    def take(self, event: Event) -> None:
        self._latest = max(self._latest, version_of(event.object))
        if event.kind == "SYNC":
            there = {_key(body) for body in event.object["items"]}
            for key in [k for k in self._objects if k not in there and not self._is_later(k)]:
                self._changed(self._remove(key))
            self.synced.set()
            return
        body, key = event.object, _key(event.object)
        known = self._objects.get(key)
        if known and version_of(known) == version_of(body) and event.kind != "DELETED":
            # Our own writing, told back; what is known of it beyond that stays.
            self._unseen.discard(key)
            return
        if known and version_of(known) > version_of(body):
            return  # of what was there before what is known
        if known:
            self._remove(key)
            if event.kind != "DELETED" and known["metadata"].get("uid") != body["metadata"].get(
                "uid"
            ):
                self._changed(known)
        if event.kind != "DELETED":
            self._put(body)
        self._changed(body)

    def _is_later(self, key: Key) -> bool:
        """Whether it was written by this program after all that the watch has told."""
        return key in self._unseen and version_of(self._objects[key]) > self._latest

    def wrote(self, body: Object) -> None:
        """Take in what this program has written itself, unless the watch was faster."""
        if version_of(body) > self._latest:
            if _key(body) in self._objects:
                self._remove(_key(body))
            self._put(body)
            self._unseen.add(_key(body))

    def assume(self, before: Object, after: Object) -> None:
        """Take in what will be heard of in a moment, unless more is known already."""
        known = self._objects.get(_key(before))
        if known is not None and version_of(known) == version_of(before):
            self._remove(_key(before))
            self._put(after)

    def _put(self, body: Object) -> None:
        body["metadata"].pop("managedFields", None)
        self._objects[_key(body)] = body
        group = self._group(body)
        if group is not None:
            self._groups.setdefault(group, {})[body["metadata"]["name"]] = body

    def _remove(self, key: Key) -> Object:
        self._unseen.discard(key)
        before = self._objects.pop(key)
        group = self._group(before)
        if group is not None:
            del self._groups[group][key[1]]
            if not self._groups[group]:
                del self._groups[group]
        return before


def _key(body: Object) -> Key:
    return namespace_of(body), body["metadata"]["name"]
