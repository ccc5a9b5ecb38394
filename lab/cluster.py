"""The lab's API server for its programs that do many things at once: objects as they are, and watches.

Not the client that the product's programs use: what plays the outside world must not share a mistake with
them. Sources: Kubernetes' "API Concepts" (paging, watches, bookmarks, 410) and "Server-Side Apply".
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

from lab.control_plane.commands import API_SERVER
from lab.control_plane.kube import tls
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK, kept

Object = dict[str, Any]
Objects = list[Object]

_PAGE = 500
_ATTEMPTS = 5
_REQUEST = aiohttp.ClientTimeout(total=30)
_WATCH = aiohttp.ClientTimeout(total=None, sock_read=150)
"""The server sends a bookmark every minute."""
_LONGEST_PAUSE_SECONDS = 5.0
_PATCHES = {"apply": "application/apply-patch+yaml", "merge": "application/merge-patch+json"}
_NOT_FOUND, _GONE, _TOO_MANY = 404, 410, 429


class ClusterError(Exception):
    """The API server did not do it; `status` is its HTTP status, 0 when it did not answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind, and where the API has it."""

    api_version: str
    plural: str
    kind: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of the collection, of an object in it, or of a part of that."""
        root = (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )
        inside = f"namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root, inside, self.plural, name, subresource) if part)


POD = ObjectKind("v1", "pods", "Pod")
EVENT = ObjectKind("v1", "events", "Event")
CONFIG_MAP = ObjectKind("v1", "configmaps", "ConfigMap")
SECRET = ObjectKind("v1", "secrets", "Secret")
NAMESPACE = ObjectKind("v1", "namespaces", "Namespace", namespaced=False)
NODE = ObjectKind("v1", "nodes", "Node", namespaced=False)
LEASE = ObjectKind("coordination.k8s.io/v1", "leases", "Lease")
DAEMON_SET = ObjectKind("apps/v1", "daemonsets", "DaemonSet")
DEPLOYMENT = ObjectKind("apps/v1", "deployments", "Deployment")


class Event(NamedTuple):
    """`ADDED`, `MODIFIED` or `DELETED`; `SYNC` when all that there is has been told."""

    kind: str
    object: Object


class Cluster:
    """The API server of a lab, as one of its clients; used within `async with`."""

    def __init__(self, layout: Layout, client: str) -> None:
        port = kept(layout.ports).get(API_SERVER)
        if port is None:
            raise ClusterError(f"there is no control plane in {layout.folder}; start it first")
        self.url = f"https://{LOOPBACK}:{port}"
        self._tls = tls(layout, client)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """The object, or None."""
        try:
            return await self.ask("GET", kind.path(namespace, name))
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Objects:
        """All objects that the selectors choose; none of a kind that does not exist."""
        try:
            return (await self._listed(kind, namespace, _selectors(labels, fields)))[0]
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return []
            raise

    async def apply(
        self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str, subresource: str = ""
    ) -> Object:
        """Server-side apply; takes over fields of others."""
        metadata = body["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        return await self.ask("PATCH", path, query, body, _PATCHES["apply"])

    async def patch(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str,
        body: Mapping[str, Any],
        subresource: str = "",
    ) -> Object:
        path = kind.path(namespace, name, subresource)
        return await self.ask("PATCH", path, {}, body, _PATCHES["merge"])

    async def delete(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Begin the deletion; absent is done. With `uid` another object of the name is a conflict."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self.ask("DELETE", kind.path(namespace, name), {}, options)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise

    async def watch(self, kind: ObjectKind, fields: str = "") -> AsyncIterator[Event]:
        """What there is, then every change, also over restarts of the server."""
        known: dict[str, Object] = {}
        failures, version, query = 0, "", _selectors("", fields)
        while True:
            try:
                if not version:
                    items, version = await self._listed(kind, "", query)
                    for event in _differences(known, items):
                        yield event
                    yield Event("SYNC", {})
                failures = 0
                async for event in self._changes(kind, query, version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.kind == "BOOKMARK":
                        continue
                    uid = event.object["metadata"]["uid"]
                    known[uid] = event.object
                    if event.kind == "DELETED":
                        del known[uid]
                    yield event
            except ClusterError as error:
                version = version if error.status == 0 else ""
                failures += error.status != _GONE
            await asyncio.sleep(_pause(failures))

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """The decoded answer; what broke is asked again, but for a creation that may have been done.

        Raises:
            ClusterError: refused, or not reached.
        """
        payload = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._session.request(
                    method,
                    self.url + path,
                    params=query,
                    data=payload,
                    headers=headers,
                    timeout=_REQUEST,
                ) as answer:
                    said = _decoded(await answer.read())
                if answer.status < 300:
                    return said
                problem = _refused(method, path, said, answer.status)
                again = answer.status == _TOO_MANY or (answer.status >= 500 and method != "POST")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = ClusterError(
                    f"{self.url} did not answer {method} {path}: {error or type(error).__name__}"
                )
                again = method != "POST" or isinstance(error, aiohttp.ClientConnectorError)
            if not again or attempt == _ATTEMPTS:
                break
            await asyncio.sleep(_pause(attempt))
        raise problem

    async def _listed(
        self, kind: ObjectKind, namespace: str, query: Mapping[str, str]
    ) -> tuple[Objects, str]:
        items: Objects = []
        following = ""
        while True:
            page = {**query, "limit": str(_PAGE), "continue": following}
            try:
                answer = await self.ask("GET", kind.path(namespace), page)
            except ClusterError as error:
                if error.status != _GONE or not following:
                    raise
                items, following = [], ""
                continue
            # Objects in a list do not say what they are.
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            items += [named | item for item in answer["items"] or ()]
            following = answer["metadata"].get("continue", "")
            if not following:
                return items, answer["metadata"]["resourceVersion"]

    async def _changes(
        self, kind: ObjectKind, query: Mapping[str, str], version: str
    ) -> AsyncIterator[Event]:
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
        }
        path, rest = kind.path(), b""
        try:
            async with self._session.get(self.url + path, params=asked, timeout=_WATCH) as answer:
                if answer.status >= 300:
                    raise _refused("GET", path, _decoded(await answer.read()), answer.status)
                async for piece in answer.content.iter_any():
                    # Lines may be longer than any buffer of a reader of lines.
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        said = json.loads(line)
                        if said["type"] == "ERROR":
                            raise _refused(
                                "GET", path, said["object"], said["object"].get("code", 0)
                            )
                        yield Event(said["type"], said["object"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ClusterError(f"the watch of {path} broke off: {error}") from error


def _decoded(answer: bytes) -> Object:
    """The answer; of a path that does not exist it is plain text."""
    try:
        said: Object = json.loads(answer)
    except ValueError:
        return {"message": answer.decode(errors="replace").strip()}
    return said


def _refused(method: str, path: str, said: Mapping[str, Any], status: int) -> ClusterError:
    message = said.get("message") or "no reason given"
    return ClusterError(f"the API server refused {method} {path} with {status}: {message}", status)


def _pause(failures: int) -> float:
    return min(0.05 * 2**failures, _LONGEST_PAUSE_SECONDS) if failures else 0.0


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def _differences(known: dict[str, Object], items: list[Object]) -> list[Event]:
    """What happened between what was known and what is; `known` is brought up to date."""
    now = {item["metadata"]["uid"]: item for item in items}
    events = [Event("DELETED", body) for uid, body in known.items() if uid not in now]
    for uid, body in now.items():
        before = known.get(uid)
        if before is None:
            events.append(Event("ADDED", body))
        elif before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            events.append(Event("MODIFIED", body))
    known.clear()
    known.update(now)
    return events
