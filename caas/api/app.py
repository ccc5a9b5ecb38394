"""The application: the routes, the services behind them and the gate in front of them, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from caas.api.containers import Containers, LogQuery, LogResponse
from caas.api.docs import DESCRIPTION, describe, problems
from caas.api.gate import BODY_SECONDS, AnonymousLimit, Gate, RateLimit
from caas.api.overview import ClusterAnswer, overview
from caas.api.pages import add_pages
from caas.api.problems import (
    CapacityAnswer,
    ContainersAnswer,
    EventsAnswer,
    Problem,
    ProblemError,
    ShareAnswer,
    TenancyAnswer,
    answer_all,
)
from caas.api.store import SECONDS, Store
from caas.api.tokens import AGAIN_SECONDS, Caller, Callers, IssuerKeys
from caas.cluster import Cluster, ClusterError
from caas.program import ended
from caas.settings import Settings
from gpuclusters.container_api.container import ContainerAnswer, State
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.tenancy.objects import NAMESPACE

_BEARER = HTTPBearer(
    auto_error=False,
    bearerFormat="JWT",
    description="A token of the cluster's OpenID issuer; its claim names the tenant, or its claim "
    "`groups` the group of operators.",
)


async def _containers(request: Request) -> Containers:
    containers: Containers = request.app.state.containers
    return containers


async def _known(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


async def _tenant(
    caller: Annotated[Caller, Depends(_known)], using: Annotated[Containers, Depends(_containers)]
) -> Caller:
    if not caller.tenant:
        none = "the token is an operator's and names no tenant"
        raise ProblemError(Problem.NO_TENANCY, none)
    await using.store.welcome(caller.tenant)
    return caller


async def _operator(caller: Annotated[Caller, Depends(_known)]) -> None:
    if not caller.operator:
        none = "the token's claim `groups` does not name the operators' group of this cluster"
        raise ProblemError(Problem.OPERATORS_ONLY, none)


Using = Annotated[Containers, Depends(_containers)]
By = Annotated[Caller, Depends(_tenant)]
Id = Annotated[str, Path(description="The container's id.", max_length=253)]


class ListQuery(BaseModel):
    """Which containers."""

    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="Containers per page.")] = 100
    cursor: Annotated[
        str | None,
        Field(
            max_length=128,
            pattern=r"^[-0-9TZ:.]+~[-a-z0-9]+$",
            description="`next` of the page before.",
        ),
    ] = None


router = APIRouter(prefix="/v1", responses=problems(401, 403, 429, 503))


@router.post(
    "/containers",
    status_code=201,
    tags=["containers"],
    summary="Run a container",
    responses={
        **problems(400, 408, 409, 413, 415, 422),
        201: {
            "headers": {
                "Location": {"schema": {"type": "string"}, "description": "Where it is found."},
                "Idempotency-Replayed": {
                    "schema": {"type": "string", "enum": ["true"]},
                    "description": "It had been made before, with the same key.",
                },
            }
        },
    },
)
async def create(
    body: ContainerRequest,
    response: Response,
    caller: By,
    using: Using,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            pattern=r"^[\x21-\x7e]+$",
            description="A request that is repeated with the same key makes one container, as long "
            "as that exists.",
            examples=["6f1c7d0e-5b1a-4f0f-9d6c-0d9a3c1e2b44"],
        ),
    ] = None,
) -> ContainerAnswer:
    """Ask for a container with GPUs. It waits in the queue until its turn comes."""
    made, replayed = await using.create(caller.tenant, body, idempotency_key)
    response.headers["Location"] = f"/v1/containers/{made.id}"
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return made


@router.get("/containers", tags=["containers"], summary="List containers", responses=problems(422))
async def listing(
    query: Annotated[ListQuery, Query()], caller: By, using: Using
) -> ContainersAnswer:
    """The tenant's containers, oldest first."""
    found = using.list(caller.tenant, query.state)
    if query.cursor is not None:
        created, _, container = query.cursor.partition("~")
        found = [one for one in found if _place(one) > (created, container)]
    page = found[: query.limit]
    return ContainersAnswer(
        items=page, next="~".join(_place(page[-1])) if len(found) > len(page) else None
    )


@router.get(
    "/containers/{container}",
    tags=["containers"],
    summary="Look at a container",
    responses=problems(404, 422),
)
async def read(container: Id, caller: By, using: Using) -> ContainerAnswer:
    """One container."""
    return await using.get(caller.tenant, container)


@router.delete(
    "/containers/{container}",
    status_code=202,
    tags=["containers"],
    summary="End a container",
    response_model=ContainerAnswer,
    responses={**problems(422), 204: {"description": "There is none such (any more)."}},
)
async def delete(container: Id, caller: By, using: Using) -> Any:
    """Stop it (SIGTERM, 30 s later SIGKILL) and forget it. May be repeated."""
    found = await using.delete(caller.tenant, container)
    return Response(status_code=204) if found is None else found


@router.get(
    "/containers/{container}/logs",
    tags=["containers"],
    summary="Read a container's log",
    status_code=200,
    response_class=LogResponse,
    responses={
        **problems(404, 409, 422),
        200: {
            "description": "What it has written, in UTF-8.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
)
async def logs(
    container: Id, query: Annotated[LogQuery, Query()], caller: By, using: Using
) -> LogResponse:
    """What the container has written to its standard output and error."""
    return LogResponse(await using.log(caller, container, query))


@router.get(
    "/containers/{container}/events",
    tags=["containers"],
    summary="What happened to a container",
    responses=problems(404, 422),
)
async def events(container: Id, caller: By, using: Using) -> EventsAnswer:
    """What happened to it, oldest first; kept for an hour."""
    return EventsAnswer(items=await using.events(caller.tenant, container))


@router.get("/capacity", tags=["tenancy"], summary="What the cluster has to give")
async def capacity_now(caller: By, using: Using) -> CapacityAnswer:
    """Partitions and GPUs that are free, and the tenant's own share. Nothing about other tenants."""
    tenancy = using.store.tenancy(caller.tenant)
    gpus, sizes = using.store.capacity()
    share = ShareAnswer(quota=tenancy.gpus, used=tenancy.gpus_used)
    return CapacityAnswer(gpus=gpus, sizes=sizes, tenant=share)


@router.get("/tenancy", tags=["tenancy"], summary="The caller's tenancy")
async def tenancy_now(caller: By, using: Using) -> TenancyAnswer:
    """Whether it is ready, what it allows and what is used of it."""
    tenancy = using.store.tenancy(caller.tenant)
    return TenancyAnswer(
        tenant=tenancy.tenant,
        ready=tenancy.ready,
        reason=tenancy.reason,
        gpus=ShareAnswer(quota=tenancy.gpus, used=tenancy.gpus_used),
        gpu_sizes=list(tenancy.sizes),
        images=list(tenancy.images),
        containers=using.count(tenancy.tenant),
        max_containers=using.settings.api.max_containers,
        volumes=using.store.volumes(tenancy),
        quota=tenancy.hard,
        used=tenancy.used,
    )


@router.get(
    "/cluster",
    tags=["operators"],
    summary="The whole cluster",
    dependencies=[Depends(_operator)],
)
async def cluster_now(using: Using) -> ClusterAnswer:
    """Machines, their boards as they are cut, leases, tenants, and what differs from the settings.

    Only for operators.
    """
    return overview(using)


def _place(container: ContainerAnswer) -> tuple[str, str]:
    return container.created_at, container.id


_READY_SECONDS = 2.0
"""How long an answer to `readyz` stands, so that asking often costs the cluster nothing."""
_TAGS = {
    "containers": "Containers with GPUs.",
    "tenancy": "What the tenant may have and the cluster can give.",
    "operators": "What operators see.",
}


@dataclass(frozen=True, slots=True)
class Program:
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
    anonymous: AnonymousLimit | None = None,
) -> Program:
    """The API as an ASGI application. `cluster` is open as long as it is used."""
    keys = keys or IssuerKeys(settings.api, clock)
    store = Store(settings, cluster, kube_seconds)
    containers = Containers(settings, cluster, store, clock)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with store.running():
            asking = asyncio.create_task(_until_known(keys))
            try:
                yield
            finally:
                containers.end_logs()
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
    app.state.containers = containers
    app.include_router(router)
    answer_all(app)
    describe(app)
    add_pages(app)
    gate = Gate(
        app,
        Callers(settings.api, keys, clock),
        RateLimit(settings.api.requests_per_second, settings.api.burst, time.monotonic),
        anonymous or AnonymousLimit(time.monotonic),
        max_body_bytes=settings.api.max_body_bytes,
        body_seconds=body_seconds,
        stop=containers.end_logs,
    )
    return Program(gate, Condition(cluster, store, keys, settings.namespace))


async def _until_known(keys: IssuerKeys) -> None:
    """The first caller should not have to wait for the issuer."""
    while not keys.known:
        await keys.renew()
        await asyncio.sleep(0 if keys.known else AGAIN_SECONDS)


@dataclass(eq=False)
class Condition:
    cluster: Cluster
    store: Store
    keys: IssuerKeys
    namespace: str
    _asked: float = float("-inf")
    _answers: bool = False
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def broken(self) -> str | None:
        """Why it must be started again."""
        return None if self.store.alive else "a watch of the cluster has ended"

    async def waits_for(self) -> str | None:
        """Why requests should go elsewhere."""
        if not self.keys.known:
            return "the issuer has given no keys yet"
        if not self.store.synced or not await self._reachable():
            return "the cluster does not answer"
        return None

    async def _reachable(self) -> bool:
        async with self._one_at_a_time:
            if time.monotonic() - self._asked >= _READY_SECONDS:
                call = self.cluster.get(NAMESPACE, self.namespace)
                try:
                    await self.store.bounded(call)
                    self._answers = True
                except ClusterError:
                    self._answers = False
                self._asked = time.monotonic()
            return self._answers
