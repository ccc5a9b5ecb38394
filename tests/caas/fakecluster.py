"""An API server in this process, and clients of it that can be killed at any step.

The server has what the controllers rely on: versions, compare-and-swap, merge patches, finalizers,
generations, watches. What was sent is carried out whether its sender lives or not, and its answer is
lost when the sender is dead by then.
"""

import asyncio
import itertools
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

from caas.cluster import ClusterError, ConflictError, Event
from gpuclusters.core.ports import ObjectKind
from tests.caas import loops

Body = dict[str, Any]
Key = tuple[str, str, str]
Hook = Callable[[ObjectKind, Body | None, Body], None]
"""Called before something is stored, with what was there; may change it, or refuse it by an error."""


def copied(found: Any) -> Any:
    """As `copy.deepcopy`, in a tenth of the time."""
    return pickle.loads(pickle.dumps(found, pickle.HIGHEST_PROTOCOL))


class Server:
    """The objects, and who watches them."""

    def __init__(self) -> None:
        self.objects: dict[Key, Body] = {}
        self.refusal: Callable[[Body], str | None] = lambda _pod: None
        """Why a pod of a dry run is refused."""
        self._hooks: list[Hook] = []
        self.watchers: list[tuple[ObjectKind, asyncio.Queue[Event]]] = []
        self._kinds: dict[str, ObjectKind] = {}
        self._versions = itertools.count(1)
        self._sent: set[asyncio.Task[Any]] = set()

    def before_storing(self, hook: Hook) -> None:
        """Have something looked at or filled in."""
        self._hooks.append(hook)

    async def serve(self, work: Callable[[], Any]) -> Any:
        """The answer to a request; once sent, it is carried out."""

        async def carry_out() -> Any:
            await asyncio.sleep(0)
            return work()

        return copied(await self.outlasting(carry_out()))

    async def outlasting(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What was begun somewhere else goes on there, whatever happens to who began it."""
        life = loops.current()
        if life and life.dead.is_set():
            work.close()
            life.alive()
        sent = asyncio.get_running_loop().create_task(work, context=Context())
        self._sent.add(sent)
        sent.add_done_callback(self._sent.discard)
        try:
            return await asyncio.shield(sent)
        finally:
            if life:
                life.alive()

    async def quiet(self) -> None:
        """All that was sent is done."""
        while self._sent:
            await asyncio.gather(*self._sent, return_exceptions=True)

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Body | None:
        return self.objects.get((kind.plural, namespace, name))

    def of(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Body]:
        """By namespace and name, as they lie in etcd."""
        return [
            body
            for (plural, where, _), body in sorted(self.objects.items(), key=lambda item: item[0])
            if plural == kind.plural and _chosen(body, namespace, labels, fields)
        ]

    def create(self, kind: ObjectKind, body: Body) -> Body:
        if kind.plural == "events":
            return body
        metadata = body["metadata"]
        key = (kind.plural, metadata.get("namespace", ""), metadata["name"])
        if key in self.objects:
            raise ConflictError(f"{key} is there", status=409, reason="AlreadyExists")
        home = ("namespaces", "", key[1])
        if key[1] and (home not in self.objects or _ending(self.objects[home])):
            raise ClusterError(f"no namespace for {key}", status=404, reason="NotFound")
        made = {key: value for key, value in body.items() if key != "status"}
        made["metadata"] = {**metadata, **self._born()}
        return self._store(kind, None, made)

    def put(self, kind: ObjectKind, body: Body) -> Body:
        """Have it as it is said, with its status and all, whatever was there."""
        before = self.get(kind, body["metadata"]["name"], body["metadata"].get("namespace", ""))
        known = before["metadata"] if before else self._born()
        body = copied(body)
        born = {key: known[key] for key in ("uid", "generation", "creationTimestamp")}
        body["metadata"] = {**born, **body["metadata"]}
        return copied(self._keep(kind, before, body))

    def state(self, kind: ObjectKind, name: str, status: Body, **more: Any) -> Body:
        """Have a thing of this name in this state."""
        metadata = {"name": name, "labels": {}}
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        return self.put(kind, {**made, **more, "status": status})

    def _born(self) -> Body:
        number = next(self._versions)
        at = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
        return {"uid": f"uid-{number}", "generation": 1, "creationTimestamp": at}

    def change(
        self, kind: ObjectKind, body: Body, patch: Mapping[str, Any], *, status: bool
    ) -> Body:
        """A merge patch of the object, or of its status."""
        for field in ("uid", "resourceVersion"):
            wanted = (patch.get("metadata") or {}).get(field)
            if wanted not in (None, body["metadata"][field]):
                raise ConflictError(f"another {field}", status=409, reason="Conflict")
        patch = {k: v for k, v in patch.items() if (k == "status") == status}
        if status and not patch:
            return body
        return self._store(kind, body, _merged(body, patch))

    def replace_status(self, kind: ObjectKind, body: Body) -> Body:
        metadata = body["metadata"]
        if "resourceVersion" not in metadata:
            raise ValueError("a status is replaced as it was read, with its resourceVersion")
        live = self.there(kind, metadata["name"], metadata.get("namespace", ""))
        if live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise ConflictError("another version", status=409, reason="Conflict")
        return self._store(kind, live, {**live, "status": copied(body["status"])})

    def delete(self, kind: ObjectKind, name: str, namespace: str, uid: str | None) -> None:
        body = self.there(kind, name, namespace)
        if uid not in (None, body["metadata"]["uid"]):
            raise ConflictError("another uid", status=409, reason="Conflict")
        if kind.plural == "namespaces":
            for (plural, where, inner), _ in list(self.objects.items()):
                if where == name:
                    self.remove(self._kinds[plural], inner, where)
        if body["metadata"].get("finalizers"):
            if not _ending(body):
                metadata = {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
                self._store(kind, body, {**body, "metadata": metadata})
        else:
            self.remove(kind, name, namespace)

    def watch(
        self, kind: ObjectKind, namespace: str, labels: str, fields: str
    ) -> asyncio.Queue[Event]:
        self._kinds[kind.plural] = kind
        queue: asyncio.Queue[Event] = asyncio.Queue()
        items = copied(self.of(kind, namespace, labels, fields))
        for body in items:
            queue.put_nowait(Event("ADDED", body))
        queue.put_nowait(Event("SYNC", {"metadata": {}, "items": items}))
        self.watchers.append((kind, queue))
        return queue

    def there(self, kind: ObjectKind, name: str, namespace: str = "") -> Body:
        body = self.get(kind, name, namespace)
        if body is None:
            raise ClusterError(f"no {kind.kind} {name}", status=404, reason="NotFound")
        return body

    def _store(self, kind: ObjectKind, before: Body | None, body: Body) -> Body:
        body = copied(body)
        for hook in self._hooks:
            hook(kind, before, body)
        if body == before:
            return before
        metadata = body["metadata"]
        if before is not None and before.get("spec") != body.get("spec"):
            metadata["generation"] = before["metadata"]["generation"] + 1
        self._keep(kind, before, body)
        if _ending(body) and not metadata.get("finalizers"):
            self.remove(kind, metadata["name"], metadata.get("namespace", ""))
        return body

    def _keep(self, kind: ObjectKind, before: Body | None, body: Body) -> Body:
        metadata = body["metadata"]
        metadata["resourceVersion"] = str(next(self._versions))
        self._kinds[kind.plural] = kind
        self.objects[kind.plural, metadata.get("namespace", ""), metadata["name"]] = body
        self._tell(kind, Event("ADDED" if before is None else "MODIFIED", body))
        return body

    def remove(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Take it away at once."""
        body = self.objects.pop((kind.plural, namespace, name))
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(kind, Event("DELETED", body))

    def _tell(self, kind: ObjectKind, event: Event) -> None:
        for watched, queue in self.watchers:
            if watched == kind:
                queue.put_nowait(Event(event.kind, copied(event.object)))


class FakeCluster:
    """A client of the server, with the part of `Cluster` that programs use."""

    target = "API server in this process"

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()

    async def ask(self, _call: str, work: Callable[[], Any]) -> Any:
        """What every call but a watch goes through."""
        return await self.server.serve(work)

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Any:
        return await self.ask("get", lambda: self.server.get(kind, name, namespace))

    async def list(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Any:
        return await self.ask("list", lambda: self.server.of(kind, namespace, labels, fields))

    async def create(
        self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str = "", dry_run: bool = False
    ) -> Any:
        def work() -> Body:
            if not dry_run:
                return self.server.create(kind, dict(body))
            if (refused := self.server.refusal(dict(body))) is not None:
                raise ClusterError(refused, status=403, reason="Forbidden")
            return dict(body)

        return await self.ask("create", work)

    async def apply(self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str) -> Any:
        def work() -> Body:
            metadata = body["metadata"]
            live = self.server.get(kind, metadata["name"], metadata.get("namespace", ""))
            if live is None:
                return self.server.create(kind, dict(body))
            return self.server.change(kind, live, body, status=False)

        return await self.ask("apply", work)

    async def patch(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
    ) -> Any:
        def work() -> Body:
            live = self.server.there(kind, name, namespace)
            return self.server.change(kind, live, patch, status=subresource == "status")

        return await self.ask("patch", work)

    async def replace_status(self, kind: ObjectKind, body: Mapping[str, Any]) -> Any:
        return await self.ask("replace", lambda: self.server.replace_status(kind, dict(body)))

    async def delete(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        try:
            await self.ask("delete", lambda: self.server.delete(kind, name, namespace, uid))
        except ClusterError as error:
            if error.status != 404:
                raise

    async def watch(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[Event]:
        queue = self.server.watch(kind, namespace, labels, fields)
        while True:
            event = await queue.get()
            if event.kind == "SYNC" or _chosen(event.object, namespace, labels, fields):
                yield event


def _chosen(body: Body, namespace: str, labels: str, fields: str) -> bool:
    metadata = body["metadata"]
    label, with_value, value = labels.partition("=")
    found = (metadata.get("labels") or {}).get(label)
    part, _, wanted = fields.partition("=")
    stated: Any = body
    for key in filter(None, part.split(".")):
        stated = stated.get(key, {})
    return (
        namespace in ("", metadata.get("namespace", ""))
        and (not fields or stated == wanted)
        and (not labels or (found == value if with_value else found is not None))
    )


def _ending(body: Body) -> bool:
    return "deletionTimestamp" in body["metadata"]


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
