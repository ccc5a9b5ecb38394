"""Objects of the Kubernetes cluster as plain dictionaries, for programs that do many things at once.

The client library reads the configuration, renews tokens and checks certificates. Its models are not used (an
object loses what a model does not know), nor its watch, which neither tells what was missed while the server
was away nor notices a dead connection.
"""

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import kube_config

from gpuclusters.core.ports import ObjectKind

Body = Mapping[str, Any]
Query = Sequence[tuple[str, str]]
Object = dict[str, Any]
Objects = list[Object]

CONNECTIONS = 256
"""Requests at once; HTTP/1.1 carries one per connection."""
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 10.0
PAGE = 500
IDLE_SECONDS = 150.0
"""The server sends a bookmark every minute; a watch on which none comes is dead."""
LONGEST_WATCH_PAUSE_SECONDS = 15.0

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_NOT_FOUND = 404
_CONFLICT = 409
_GONE = 410
_TOO_MANY = 429
_NEVER_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)
_TRY_LATER = frozenset({500, 502, 503, 504})
_log = logging.getLogger(__name__)


class ClusterError(Exception):
    """The API server did not do what it was asked; the text is one sentence with the reason.

    `status` is the HTTP status, 0 without an answer; `reason` is Kubernetes' word for it, or `Unreachable`.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def ungranted(self) -> bool:
        """Whether our account has no such right; an admission rule's refusal has another sentence."""
        text = str(self)
        return self.status == 403 and " cannot " in text and " resource " in text


class ConflictError(ClusterError):
    """Somebody else changed or made the object first, or owns a field (status 409)."""


class NotFoundError(ClusterError):
    """There is no such object, or no such kind (status 404)."""


class Event(NamedTuple):
    """A change. `SYNC` says what there is in all: its object is the list, whose items came before it."""

    kind: Literal["SYNC", "ADDED", "MODIFIED", "DELETED"]
    object: Object


class Cluster:
    """The cluster, as one identity, over one pool of connections; used within `async with`.

    Every call raises `ClusterError` when the server is not reached or refuses. Requests time out after 30 s;
    overload is waited out as the server says; what may be done twice is repeated when the connection breaks.
    """

    def __init__(self, kubeconfig: Path | None = None) -> None:
        """As `kubeconfig` or the variable KUBECONFIG says, else as the service account of the pod."""
        self._kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")
        self._client: Any = None

    async def __aenter__(self) -> Self:
        """Open it; `ClusterError` if the configuration cannot be used."""
        configuration = Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        try:
            if self._kubeconfig:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    str(self._kubeconfig), client_configuration=configuration, persist_config=False
                )
            else:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=configuration
                )
            # Else a thread is asked before each request whether the environment names a proxy.
            configuration.client_session_kwargs = {
                "trust_env": _has_proxy(configuration.host),
                "cookie_jar": aiohttp.DummyCookieJar(),
            }
            self._client = ApiClient(configuration)
        except (config.ConfigException, OSError, ValueError) as error:
            named = self._kubeconfig
            where = f"kubeconfig {named}" if named else "service account of this pod"
            raise ClusterError(f"{where} cannot be used: {error}") from error
        finally:
            # Keys embedded in a kubeconfig were written to files for OpenSSL, which has read them.
            kube_config._cleanup_temp_files()  # type: ignore[no-untyped-call]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def target(self) -> str:
        return f"API server {self._client.configuration.host}"

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """The object, or None if it or its kind does not exist."""
        with suppress(NotFoundError):
            return await self._ask("GET", kind.path(namespace, name))
        return None

    async def list(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Objects:
        """What the selectors choose, in every namespace if none is named; nothing of an unknown kind."""
        with suppress(NotFoundError):
            items, _ = await self._listed(kind, namespace, _selectors(labels, fields))
            return items
        return []

    async def create(
        self, kind: ObjectKind, body: Body, *, manager: str = "", dry_run: bool = False
    ) -> Object:
        """Create it; `ConflictError` (`AlreadyExists`) when it is there. `dry_run` stores nothing."""
        query = [("dryRun", "All")] if dry_run else []
        if manager:
            query.append(("fieldManager", manager))
        path = kind.path(namespace_of(body))
        return await self._ask("POST", path, query, dict(body), repeatable=dry_run)

    async def apply(self, kind: ObjectKind, body: Body, *, manager: str) -> Object:
        """Server-side apply by force as one field manager; unknown fields are refused."""
        query = [("fieldManager", manager), ("force", "true"), ("fieldValidation", "Strict")]
        path = kind.path(namespace_of(body), body["metadata"]["name"])
        return await self._ask("PATCH", path, query, dict(body), content_type=_APPLY)

    async def patch(
        self, kind: ObjectKind, name: str, namespace: str, patch: Body, *, subresource: str = ""
    ) -> Object:
        """Merge patch; one that names the resourceVersion it expects is a `ConflictError` on another."""
        path = kind.path(namespace, name, subresource)
        return await self._ask("PATCH", path, body=dict(patch), content_type=_MERGE)

    async def replace_status(self, kind: ObjectKind, body: Body) -> Object:
        """Compare and swap of the status: `ConflictError` unless `body` has the newest resourceVersion.

        Also raised when an answer was lost and the repetition met what the first try had written:
        read again and look, before anything is concluded.
        """
        if not body["metadata"].get("resourceVersion"):
            raise ValueError("a status is replaced only where the resourceVersion is known")
        path = kind.path(namespace_of(body), body["metadata"]["name"], "status")
        return await self._ask("PUT", path, body=dict(body))

    async def delete(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Begin the deletion; absent is done. Another object than that of `uid` is a `ConflictError`."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        with suppress(NotFoundError):
            await self._ask("DELETE", kind.path(namespace, name), body=options)

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
    ) -> AsyncIterator[bytes]:
        """A pod's log in pieces as they come; with `follow` until the container ends."""
        asked = {"container": container, "tailLines": tail_lines, "sinceSeconds": since_seconds}
        query = [(key, str(value)) for key, value in asked.items() if value not in ("", None)]
        query.append(("follow", str(follow).lower()))
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        async with self._pieces(path, query, idle_seconds=None if follow else 30.0) as pieces:
            async for piece in pieces:
                yield piece

    async def watch(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[Event]:
        """What there is (`ADDED`, then one `SYNC`), then every change, until closed or cancelled.

        Survives restarts of the server; where it has to begin anew, what is not in the next `SYNC` is gone. A
        kind that does not exist (yet) has no objects and is asked for again, like one that may not be read,
        which however never comes to a `SYNC`.
        """
        query, path = _selectors(labels, fields), kind.path(namespace)
        failures, version = 0, ""
        while True:
            try:
                if not version:
                    items, metadata = await self._listed(kind, namespace, query)
                    for item in items:
                        yield Event("ADDED", item)
                    version = metadata["resourceVersion"]
                    yield Event("SYNC", {"metadata": metadata, "items": items})
                failures = 0
                async for change, latest in self._changes(path, query, version):
                    version = latest
                    if change is not None:
                        yield change
            except ClusterError as error:
                if error.status:
                    version = ""
                if error.status == _GONE:
                    continue
                failures += 1
                if error.status == _NOT_FOUND:
                    yield Event("SYNC", {"metadata": {}, "items": []})
                if failures == 1 or error.status != _NOT_FOUND:
                    _log.warning("watch of %s: %s", path, error)
                pause = min(0.1 * 2.0**failures, LONGEST_WATCH_PAUSE_SECONDS)
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311

    async def _changes(
        self, path: str, query: Query, version: str
    ) -> AsyncIterator[tuple[Event | None, str]]:
        """Events after `version`, each with the version that it leads to; bookmarks are None."""
        asked = [
            *query,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            # Watches that began together do not all end together.
            ("timeoutSeconds", str(random.randint(240, 480))),  # noqa: S311
        ]
        async with self._pieces(path, asked, idle_seconds=IDLE_SECONDS) as pieces:
            async for line in _lines(pieces):
                try:
                    said = json.loads(line)
                except ValueError as error:
                    broken = f"the watch of {path} broke off within a line"
                    raise ClusterError(broken, reason="Unreachable") from error
                kind, body = said["type"], said["object"]
                if kind == "ERROR":
                    status, reason = int(body.get("code") or 0), str(body.get("reason") or "")
                    ended = f"the watch of {path} ended: {body.get('message')}"
                    raise ClusterError(ended, status=status, reason=reason)
                latest = body["metadata"]["resourceVersion"]
                yield (None if kind == "BOOKMARK" else Event(kind, body)), latest

    async def _listed(
        self, kind: ObjectKind, namespace: str, query: Query
    ) -> tuple[Objects, dict[str, Any]]:
        path = kind.path(namespace)
        # Objects in a list do not say what they are.
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        items: Objects = []
        following = ""
        while True:
            rest = [("continue", following)] if following else []
            try:
                answer = await self._ask("GET", path, [*query, ("limit", str(PAGE)), *rest])
            except ClusterError as error:
                if error.status != _GONE or not following:
                    raise
                # The list took longer than the server keeps old versions: from the beginning.
                items, following = [], ""
                continue
            items += [{**named, **item} for item in answer.get("items") or ()]
            following = answer["metadata"].get("continue", "")
            if not following:
                return items, answer["metadata"]

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: object = None,
        *,
        content_type: str = _JSON,
        repeatable: bool = True,
    ) -> Object:
        """The decoded answer; asked again on overload, and if `repeatable` where the outcome is unknown."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._response(method, path, query, body, content_type, TIMEOUT) as got:
                    text = await got.read()
            except _NO_ANSWER as error:
                # A connection that was never made carried nothing to the server.
                harmless = repeatable or isinstance(error, _NEVER_CONNECTED)
                if not harmless or attempt >= ATTEMPTS:
                    raise self._unreachable(method, path, error) from error
                await asyncio.sleep(_pause(attempt, None))
                continue
            if got.status < 300:
                return _decoded(text)
            again = got.status == _TOO_MANY or (got.status in _TRY_LATER and repeatable)
            if not again or attempt >= ATTEMPTS:
                raise _refused(method, path, got.status, _decoded(text))
            await asyncio.sleep(_pause(attempt, got.headers.get("Retry-After")))

    @asynccontextmanager
    async def _pieces(
        self, path: str, query: Query, *, idle_seconds: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer as it arrives; it breaks when nothing came for `idle_seconds`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=idle_seconds)
        try:
            async with self._response("GET", path, query, None, _JSON, timeout) as response:
                if response.status >= 300:
                    answer = _decoded(await response.read())
                    raise _refused("GET", path, response.status, answer)
                yield response.content.iter_any()
        except _NO_ANSWER as error:
            raise self._unreachable("GET", path, error) from error

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": _JSON, "Content-Type": content_type, **self._client.default_headers}
        known = self._client.configuration
        if token := (await known.auth_settings()).get("BearerToken"):
            headers[token["key"]] = token["value"]
        url = f"{known.host}{path}{'?' + urlencode(query, quote_via=quote) if query else ''}"
        # Not through the client's own methods: they walk through every object to find models in it.
        answer = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        try:
            yield response
        finally:
            # Releases the connection if all was read, else closes it.
            response.release() if response.content.at_eof() else response.close()

    def _unreachable(self, method: str, path: str, error: BaseException) -> ClusterError:
        said = f"{method} {path}: {str(error) or type(error).__name__}"
        return ClusterError(f"{self.target} did not answer {said}", reason="Unreachable")


def stamp(seconds: float | None = None, timespec: str = "microseconds") -> str:
    """A time as Kubernetes writes it; by default now."""
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")


def seconds_of(stamped: str) -> float:
    """The same in seconds since 1970."""
    return datetime.fromisoformat(stamped).timestamp()


def namespace_of(body: Body) -> str:
    """Empty for what is in none."""
    return str(body["metadata"].get("namespace") or "")


def version_of(body: Body) -> int:
    """Its resourceVersion: of two of one object the higher one is newer."""
    return int(body["metadata"].get("resourceVersion") or 0)


def _selectors(labels: str, fields: str) -> Query:
    stated = (("labelSelector", labels), ("fieldSelector", fields))
    return [(key, value) for key, value in stated if value]


def _has_proxy(address: str) -> bool:
    """Whether the environment names a proxy for requests to this address."""
    to = urlsplit(address)
    proxied = to.scheme in getproxies() or "all" in getproxies()
    return proxied and not proxy_bypass(to.netloc)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines of any length; the reader's own are cut at the size of its buffer."""
    rest = b""
    async for chunk in pieces:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


def _decoded(text: bytes) -> Object:
    with suppress(ValueError):
        answer = json.loads(text or "{}")
        if isinstance(answer, dict):
            return answer
    return {"message": text[:300].decode(errors="replace").strip()}


def _refused(method: str, path: str, status: int, answer: Body) -> ClusterError:
    said = str(answer.get("message") or "no reason given")
    kind = {_CONFLICT: ConflictError, _NOT_FOUND: NotFoundError}.get(status, ClusterError)
    message = f"the API server refused {method} {path} with {status}: {said}"
    return kind(message, status=status, reason=str(answer.get("reason") or ""))


def _pause(attempt: int, wait: str | None) -> float:
    """Seconds before the next attempt: what the server says, else doubling, with jitter."""
    stated = float(wait) if wait and wait.isdigit() else 0.1 * 2**attempt
    return min(stated, LONGEST_PAUSE_SECONDS) * random.uniform(1.0, 1.25)  # noqa: S311
