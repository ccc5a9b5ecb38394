"""Objects of the Kubernetes cluster as plain dictionaries, for programs that do many things at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from caas.connection import ClusterError, ConflictError, Connection
from caas.watching import Event
from caas.watching import watch as _watch
from gpuclusters.domain.ports import ObjectKind

__all__ = ["Cluster", "ClusterError", "ConflictError", "Event"]

Body = Mapping[str, Any]
Query = Sequence[tuple[str, str]]
Objects = list[dict[str, Any]]

PAGE = 500
_APPLY = "application/apply-patch+yaml"
_PATCHES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_NOT_FOUND = 404
_GONE = 410


class Cluster:
    """The cluster, as one identity.

    Every call raises `ClusterError` when the server is not reached or refuses, `ConflictError` for
    409. Requests time out after 30 s; overload is waited out as the server says; what may be done
    twice is repeated when the connection breaks. The number of requests per second is not limited
    here: the server's own fairness is the limit.
    """

    def __init__(self, kubeconfig: Path | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._opened: Connection | None = None

    @classmethod
    def connect(cls, kubeconfig: Path | None = None) -> Cluster:
        """To be entered with `async with`: as the pod's service account, or as KUBECONFIG says."""
        return cls(kubeconfig)

    async def __aenter__(self) -> Self:
        self._opened = await Connection.open(self._kubeconfig)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened:
            await self._opened.close()

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            raise RuntimeError("a Cluster is used within `async with`")
        return self._opened

    @property
    def place(self) -> str:
        """The API server as errors name it."""
        return self._connection.place

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, or None if it or its kind does not exist."""
        try:
            return await self._connection.ask("GET", object_path(kind, namespace, name))
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Objects:
        """All objects that the selectors choose, in every namespace if none is named.

        None if the kind does not exist.
        """
        try:
            items, _ = await self._listed(kind, namespace, _selectors(labels, fields))
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return []
            raise
        return items

    async def create(
        self, kind: ObjectKind, body: Body, *, manager: str = "", dry_run: bool = False
    ) -> dict[str, Any]:
        """Create it; `ConflictError` with reason `AlreadyExists` when it is there already.

        `dry_run` asks every admission step and stores nothing.
        """
        query = [("dryRun", "All")] if dry_run else []
        if manager:
            query.append(("fieldManager", manager))
        return await self._connection.ask(
            "POST", object_path(kind, _namespace(body)), query, dict(body), repeatable=dry_run
        )

    async def apply(
        self,
        kind: ObjectKind,
        body: Body,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Server-side apply as one field manager; unknown fields are refused.

        Without `force` a field that another manager owns is a `ConflictError`.
        """
        path = object_path(kind, _namespace(body), body["metadata"]["name"], subresource)
        query = [
            ("fieldManager", manager),
            ("force", str(force).lower()),
            ("fieldValidation", "Strict"),
        ]
        return await self._connection.ask("PATCH", path, query, dict(body), content_type=_APPLY)

    async def patch(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str,
        patch: Body | Sequence[Body],
        *,
        kind_of: Literal["merge", "json"] = "merge",
        subresource: str = "",
    ) -> dict[str, Any]:
        """Merge patch, or JSON patch (whose `test` operations guard it).

        A patch that names the resourceVersion it expects fails with `ConflictError` on another.
        """
        body: object = dict(patch) if isinstance(patch, Mapping) else [dict(step) for step in patch]
        return await self._connection.ask(
            "PATCH",
            object_path(kind, namespace, name, subresource),
            body=body,
            content_type=_PATCHES[kind_of],
            repeatable=kind_of == "merge",
        )

    async def replace_status(self, kind: ObjectKind, body: Body) -> dict[str, Any]:
        """Compare and swap of the status: `ConflictError` unless `body` has the newest resourceVersion.

        Also raised when an answer was lost and the repetition met what the first try had written:
        read again and look, before anything is concluded.
        """
        if not body["metadata"].get("resourceVersion"):
            raise ValueError("a status is replaced only where the resourceVersion is known")
        path = object_path(kind, _namespace(body), body["metadata"]["name"], "status")
        return await self._connection.ask("PUT", path, body=dict(body))

    async def delete(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Begin the deletion, without waiting for its end; absent is done.

        With `uid` only that very object goes: another of the same name is a `ConflictError`.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._connection.ask("DELETE", object_path(kind, namespace, name), body=options)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise

    async def watch(
        self, kind: ObjectKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[Event]:
        """What there is (`ADDED`, then one `SYNC`), then every change, without end.

        Survives restarts of the server: what happened meanwhile comes as `ADDED`, `MODIFIED` and
        `DELETED` before another `SYNC`. Close it (`aclosing`) or cancel the task to stop.
        """
        query = _selectors(labels, fields)
        path = object_path(kind, namespace)
        stream = _watch(self._connection, path, query, lambda: self._listed(kind, namespace, query))
        async for event in stream:
            yield event

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """A pod's log in pieces as they come; with `follow` until the container ends."""
        query = [("follow", str(follow).lower()), ("timestamps", str(timestamps).lower())]
        if container:
            query.append(("container", container))
        if tail_lines is not None:
            query.append(("tailLines", str(tail_lines)))
        if since_seconds is not None:
            query.append(("sinceSeconds", str(since_seconds)))
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        idle = None if follow else 30.0
        async with self._connection.pieces(path, query, idle_seconds=idle) as pieces:
            async for piece in pieces:
                yield piece

    async def _listed(
        self, kind: ObjectKind, namespace: str, query: Query
    ) -> tuple[Objects, dict[str, Any]]:
        path = object_path(kind, namespace)
        items: Objects = []
        following = ""
        while True:
            page = [*query, ("limit", str(PAGE))]
            if following:
                page.append(("continue", following))
            try:
                answer = await self._connection.ask("GET", path, page)
            except ClusterError as error:
                if error.status != _GONE or not following:
                    raise
                # The list took longer than the server keeps old versions: from the beginning.
                items, following = [], ""
                continue
            # Objects in a list do not say what they are.
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            items += [{**named, **item} for item in answer.get("items") or ()]
            following = answer["metadata"].get("continue", "")
            if not following:
                return items, answer["metadata"]


def object_path(kind: ObjectKind, namespace: str, name: str = "", subresource: str = "") -> str:
    """Path of a collection, of an object in it, or of a part of that."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    inside = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    parts = [root + inside, kind.plural, *(part for part in (name, subresource) if part)]
    return "/".join(parts)


def _namespace(body: Body) -> str:
    return str(body["metadata"].get("namespace") or "")


def _selectors(labels: str, fields: str) -> Query:
    stated = (("labelSelector", labels), ("fieldSelector", fields))
    return [(key, value) for key, value in stated if value]
