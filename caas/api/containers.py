"""What the API does with containers: make, find, list, end, tell. One tenant at a time, never across."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from caas.api.problems import (
    EventAnswer,
    Problem,
    ProblemError,
    cluster_away,
    is_away,
    not_found,
    refused,
)
from caas.api.store import Store, Tenancy
from caas.api.tokens import Caller
from caas.cluster import Cluster, ClusterError
from caas.settings import Settings
from gpuclusters.container_api import image
from gpuclusters.container_api.container import (
    CONTAINER_LABEL,
    EVENT,
    MAIN,
    REQUEST_ANNOTATION,
    ContainerAnswer,
    State,
    identifier,
    pod,
    view,
)
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.core.naming import is_dns_label
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.objects import POD

_TRIES = 5
# About the image and the process, in words of the kubelet and ours that name neither node nor device. No
# failures: why a registry did not answer would tell about the machine's network.
_AS_IT_IS = frozenset({"Pulling", "Pulled", "Created", "Started", "Killing", "StartTimedOut"})
# How full the cluster is, and with what, is the operator's business.
_NOT_TOLD = frozenset({"FailedScheduling"})
_LONGEST_MESSAGE = 1024
_log = logging.getLogger(__name__)
T = TypeVar("T")
Made = tuple[ContainerAnswer, bool]


@dataclass(eq=False)
class Containers:
    """Containers of all tenants; every method takes the one that it acts for, and raises `ProblemError`."""

    settings: Settings
    cluster: Cluster
    store: Store
    clock: Callable[[], float]
    _logs: Counter[str] = field(default_factory=Counter)
    """How many are being read by each tenant."""
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _being_made: Counter[str] = field(default_factory=Counter)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def create(self, tenant: str, request: ContainerRequest, key: str | None) -> Made:
        """Make a container, or give the one that was made with the same key; and whether it was there."""
        container = identifier(tenant, key) if key else f"c-{secrets.token_hex(10)}"
        # Duplicates wait for one another here; those that reach another copy of this program meet
        # at the API server, which has each name once.
        lock = self._locks.setdefault(container, asyncio.Lock())
        async with lock:
            namespace = self.store.tenancy(tenant).namespace
            before = self.store.pods.get(container, namespace)
            if before is not None:
                return self._view(_same(before, request)), True
            tenancy = self.store.usable(tenant)
            self._check(tenancy, request)
            self._being_made[tenant] += 1
            try:
                return await self._make(tenancy, container, request, mine=key is None)
            finally:
                self._being_made[tenant] -= 1

    async def find(self, tenant: str, container: str) -> dict[str, Any]:
        """The pod of one of the tenant's containers; not found is also what ended or is foreign."""
        namespace = self.store.tenancy(tenant).namespace
        found = self.store.pods.get(container, namespace)
        if found is None and is_dns_label(container):
            # It may have been made a moment ago through another copy of this program.
            found = await self._asked(self.cluster.get(POD, container, namespace))
        if found is None or not _belongs(found, tenant):
            raise not_found()
        return found

    async def get(self, tenant: str, container: str) -> ContainerAnswer:
        return self._view(await self.find(tenant, container))

    async def events(self, tenant: str, container: str) -> list[EventAnswer]:
        metadata = (await self.find(tenant, container))["metadata"]
        about = f"involvedObject.uid={metadata['uid']}"
        found = await self._asked(self.cluster.list(EVENT, metadata["namespace"], fields=about))
        return history(found, (host.name for host in self.settings.hosts))

    def end_logs(self) -> None:
        """End what is being read; the program is about to stop."""
        self._ending.set()

    async def log(self, caller: Caller, container: str, query: LogQuery) -> LogStream:
        """A container's log from its first piece on."""
        tenant = caller.tenant
        pod = await self.find(tenant, container)
        state = self._view(pod).state
        if state in (State.QUEUED, State.RESERVING, State.STARTING):
            raise ProblemError(Problem.NOT_STARTED, f"the container is {state}; try again")
        if self._logs[tenant] >= PER_TENANT:
            most = f"at most {PER_TENANT} logs are read at once"
            raise ProblemError(Problem.TOO_MANY_STREAMS, most)
        source = self.cluster.pod_log(
            pod["metadata"]["namespace"],
            container,
            container=MAIN,
            follow=query.follow,
            tail_lines=query.tail,
            since_seconds=query.since,
        )
        seconds = min(LONGEST_SECONDS, max(0.0, caller.expires - self.clock()))
        self._logs[tenant] += 1
        stream = LogStream(source, seconds, self._ending, lambda: self._logs.subtract([tenant]))
        try:
            await stream.begun()
        except (ClusterError, asyncio.CancelledError) as error:
            await stream.close()
            if isinstance(error, ClusterError):
                raise _problem(error) from error
            raise
        return stream

    def list(self, tenant: str, state: State | None) -> list[ContainerAnswer]:
        """All containers of the tenant, or those in one state, oldest first."""
        namespace = self.store.tenancy(tenant).namespace
        pods = (p for p in self.store.pods.within(namespace).values() if _belongs(p, tenant))
        containers = (self._view(one) for one in pods)
        wanted = (one for one in containers if state is None or one.state is state)
        return sorted(wanted, key=lambda one: (one.created_at, one.id))

    def count(self, tenant: str) -> int:
        """How many containers the tenant has, those that are just being made included."""
        namespace = self.store.tenancy(tenant).namespace
        return len(self.store.pods.within(namespace)) + self._being_made[tenant]

    async def delete(self, tenant: str, container: str) -> ContainerAnswer | None:
        """Begin the end of a container; None if there is none such (any more)."""
        try:
            found = await self.find(tenant, container)
        except ProblemError as error:
            if error.problem is Problem.NOT_FOUND:
                return None
            raise
        metadata = found["metadata"]
        if not metadata.get("deletionTimestamp"):
            namespace, uid = metadata["namespace"], metadata["uid"]
            # A conflict: that one is gone, and the name has been given anew.
            await self._asked(self.cluster.delete(POD, container, namespace, uid=uid))
        ending = {**found, "metadata": {**metadata, "deletionTimestamp": "now"}}
        self.store.pods.assume(found, ending)
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
        most, now = self.settings.api.max_containers, self.count(tenancy.tenant)
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
            runtime_class=self.settings.runtime_class,
            gpu_resource=tenancy.gpu_resource,
            huge_pages=self.settings.huge_pages,
            mounts=self.store.mounts(tenancy, request.volumes),
        )
        for attempt in range(1, _TRIES + 1):
            try:
                made = await self.store.bounded(self.cluster.create(POD, body))
            except ClusterError as error:
                if error.reason == "AlreadyExists":
                    before = await self._asked(self.cluster.get(POD, container, tenancy.namespace))
                    if before is not None:
                        # A name by chance exists only if an answer to the creation was lost.
                        return self._view(_same(before, request)), not mine
                elif error.reason not in ("Conflict", "Unreachable") or attempt == _TRIES:
                    # Counters of the quota for which others compete again and again refuse nobody.
                    if is_away(error) or error.reason == "Conflict":
                        raise _away(error) from error
                    raise refused(error, tenancy.tenant) from error
                elif error.reason == "Unreachable" and attempt > 1:
                    raise cluster_away() from error
                # Requests that come at once compete for the counters of the quota.
                await asyncio.sleep(0.02 * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
            else:
                self.store.pods.wrote(made)
                return self._view(made), False
        raise cluster_away()

    async def _asked(self, call: Awaitable[T]) -> T:
        try:
            return await self.store.bounded(call)
        except ClusterError as error:
            raise _away(error) from error

    def _view(self, found: dict[str, Any]) -> ContainerAnswer:
        return view(found, self.store.leases_of(found), gpu_resource=self.settings.gpu_resource)


def _away(error: ClusterError) -> ProblemError:
    _log.warning("the cluster: %s", error)
    return cluster_away()


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


def history(events: Iterable[Mapping[str, Any]], hosts: Iterable[str]) -> list[EventAnswer]:
    """The events of one pod, oldest first, without what they say about machines."""
    names = sorted(hosts, key=len, reverse=True)
    told = [
        EventAnswer(
            time=_time(event),
            type=event.get("type") or "Normal",
            reason=event.get("reason") or "Unknown",
            message=_message(event, names),
            count=int((event.get("series") or event).get("count") or 1),
        )
        for event in events
        if event.get("reason") not in _NOT_TOLD
    ]
    return sorted(told, key=lambda one: one.time)


def _message(event: Mapping[str, Any], hosts: Iterable[str]) -> str | None:
    if event.get("reason") not in _AS_IT_IS:
        return None
    text = str(event.get("message") or "")[:_LONGEST_MESSAGE]
    for host in hosts:
        text = text.replace(host, "a host")
    return text


def _time(event: Mapping[str, Any]) -> str:
    observed = (event.get("series") or {}).get("lastObservedTime")
    stated = observed or event.get("lastTimestamp") or event.get("eventTime")
    return str(stated or event["metadata"].get("creationTimestamp") or "")


PER_TENANT = 16
LONGEST_SECONDS = 3600.0
"""A log is followed no longer, nor longer than its caller's token is valid."""
_FIRST_SECONDS = 2.0
"""How long the first piece is waited for: until then a failure can still be told."""
_NOT_YET = 400


class LogQuery(BaseModel):
    """Which part of a log."""

    model_config = ConfigDict(extra="forbid")

    follow: Annotated[bool, Field(description="Go on until the container ends.")] = False
    tail: Annotated[int | None, Field(ge=0, le=100_000, description="Last lines only.")] = None
    since: Annotated[
        int | None, Field(ge=1, le=31_536_000, description="Not older than so many seconds.")
    ] = None


class LogStream:
    """One log that is being read. `close` must be called."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        seconds: float,
        ending: asyncio.Event,
        closed: Callable[[], None],
    ) -> None:
        self._source = source
        self._end = asyncio.get_running_loop().time() + seconds
        self._closed = closed
        self._ending = asyncio.ensure_future(ending.wait())
        self._next: asyncio.Future[bytes | None] = self._ask()

    async def begun(self) -> None:
        """Wait a moment for the first piece; `ClusterError` if there will be none."""
        await asyncio.wait({self._next}, timeout=_FIRST_SECONDS)
        if self._next.done():
            self._next.result()

    def __aiter__(self) -> LogStream:
        return self

    async def __anext__(self) -> bytes:
        left = max(0.0, self._end - asyncio.get_running_loop().time())
        waited_for: set[asyncio.Future[Any]] = {self._next, self._ending}
        await asyncio.wait(waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        piece = None
        if self._next.done() and left > 0:
            # The headers are gone: of a failure, that the log breaks off is all that can be told.
            with suppress(ClusterError):
                piece = self._next.result()
        if piece is None:
            raise StopAsyncIteration
        self._next = self._ask()
        return piece

    async def close(self) -> None:
        self._closed()
        self._next.cancel()
        self._ending.cancel()
        # A generator cannot be closed while it runs.
        await asyncio.gather(self._next, self._ending, return_exceptions=True)
        await self._source.aclose()  # type: ignore[attr-defined]

    def _ask(self) -> asyncio.Future[bytes | None]:
        return asyncio.ensure_future(anext(self._source, None))


class LogResponse(StreamingResponse):
    """A log as an answer; closed however it ends."""

    def __init__(self, stream: LogStream) -> None:
        super().__init__(stream, media_type="text/plain; charset=utf-8")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.close()


def _problem(error: ClusterError) -> ProblemError:
    if error.status == _NOT_YET:
        return ProblemError(Problem.NOT_STARTED, "the container writes no log yet; try again")
    if is_away(error):
        silent = "the machine that has the log does not answer; try again"
        return ProblemError(Problem.LOGS_AWAY, silent)
    return not_found()
