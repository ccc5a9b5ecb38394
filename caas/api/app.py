"""The application: routes, services and the gate in front of them, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from caas.api import routes
from caas.api.containers import Containers, LogStreams
from caas.api.docs import DESCRIPTION, describe
from caas.api.gate import BODY_SECONDS, Gate, RateLimit, StrangerLimit
from caas.api.problems import answer_all
from caas.api.store import SECONDS, Store
from caas.api.tenancies import Tenancies
from caas.api.tokens import AGAIN_SECONDS, Callers, IssuerKeys
from caas.cluster import Cluster, ClusterError
from caas.program import ended
from caas.settings import Settings
from gpuclusters.tenancy.objects import NAMESPACE

_READY_SECONDS = 2.0
"""How long an answer to `readyz` stands, so that asking often costs the cluster nothing."""
_TAGS = {
    "containers": "Containers with GPUs.",
    "tenancy": "What the tenant may have and the cluster can give.",
}


@dataclass(frozen=True, slots=True)
class Program:
    """What serves requests, and whether it can."""

    gate: Gate
    condition: Condition


def create_app(
    settings: Settings,
    cluster: Cluster,
    *,
    clock: Callable[[], float] = time.time,
    keys: IssuerKeys | None = None,
    kube_seconds: float = SECONDS,
    body_seconds: float = BODY_SECONDS,
    strangers: StrangerLimit | None = None,
) -> Program:
    """The API as an ASGI application. `cluster` is open as long as it is used."""
    keys = keys or IssuerKeys(settings.api, clock)
    store = Store(cluster, seconds=kube_seconds)
    tenancies = Tenancies(settings, store)
    streams = LogStreams(cluster, clock)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with store.running():
            asking = asyncio.create_task(_until_known(keys))
            try:
                yield
            finally:
                streams.end()
                await ended(asking)

    app = FastAPI(
        title="gpu-clusters",
        version="1",
        description=DESCRIPTION,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    app.state.services = routes.Services(
        settings=settings,
        store=store,
        tenancies=tenancies,
        containers=Containers(settings, cluster, store, tenancies),
        streams=streams,
    )
    app.include_router(routes.router)
    answer_all(app)
    describe(app)
    gate = Gate(
        app,
        Callers(settings.api, keys, clock),
        RateLimit(settings.api.requests_per_second, settings.api.burst, time.monotonic),
        strangers or StrangerLimit(time.monotonic),
        max_body_bytes=settings.api.max_body_bytes,
        body_seconds=body_seconds,
        stop=streams.end,
    )
    return Program(gate, Condition(cluster, store, keys, settings.namespace))


async def _until_known(keys: IssuerKeys) -> None:
    """The first caller should not have to wait for the issuer."""
    while not keys.known:
        await keys.renew()
        await asyncio.sleep(0 if keys.known else AGAIN_SECONDS)


class Condition:
    """Whether the program goes on, and whether requests should be sent to it."""

    def __init__(self, cluster: Cluster, store: Store, keys: IssuerKeys, namespace: str) -> None:
        self._cluster = cluster
        self._store = store
        self._keys = keys
        self._namespace = namespace
        self._asked = float("-inf")
        self._answers = False
        self._one_at_a_time = asyncio.Lock()

    def broken(self) -> str | None:
        """Why it must be started again."""
        return None if self._store.alive else "a watch of the cluster has ended"

    async def waits_for(self) -> str | None:
        """Why requests should go elsewhere."""
        if not self._keys.known:
            return "the issuer has given no keys yet"
        if not self._store.synced or not await self._reachable():
            return "the cluster does not answer"
        return None

    async def _reachable(self) -> bool:
        async with self._one_at_a_time:
            if time.monotonic() - self._asked >= _READY_SECONDS:
                call = self._cluster.get(NAMESPACE, self._namespace)
                try:
                    await self._store.bounded(call)
                    self._answers = True
                except ClusterError:
                    self._answers = False
                self._asked = time.monotonic()
            return self._answers
