"""The routes: HTTP on one side, containers, capacity and tenancy on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from caas.api.containers import Containers, LogResponse, LogStreams
from caas.api.docs import problems
from caas.api.problems import (
    CapacityAnswer,
    ContainersAnswer,
    EventsAnswer,
    Problem,
    ProblemError,
    ShareAnswer,
    TenancyAnswer,
)
from caas.api.store import Store
from caas.api.tenancies import Tenancies, capacity_by_size, capacity_of_gpus, phases_of
from caas.api.tokens import Caller
from caas.settings import Settings
from gpuclusters.container_api.container import ContainerAnswer, State
from gpuclusters.container_api.request import ContainerRequest

_BEARER = HTTPBearer(
    auto_error=False,
    bearerFormat="JWT",
    description="A token of the cluster's OpenID issuer; its claim names the tenant.",
)


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work with."""

    settings: Settings
    store: Store
    tenancies: Tenancies
    containers: Containers
    streams: LogStreams


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _caller(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


Using = Annotated[Services, Depends(_services)]
By = Annotated[Caller, Depends(_caller)]
Id = Annotated[str, Path(description="The container's id.", max_length=253)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ListQuery(_Query):
    """Which containers."""

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


class LogQuery(_Query):
    """Which part of a log."""

    follow: Annotated[bool, Field(description="Go on until the container ends.")] = False
    tail: Annotated[int | None, Field(ge=0, le=100_000, description="Last lines only.")] = None
    since: Annotated[
        int | None, Field(ge=1, le=31_536_000, description="Not older than so many seconds.")
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
    made = await using.containers.create(caller.tenant, body, idempotency_key)
    response.headers["Location"] = f"/v1/containers/{made.container.id}"
    if made.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return made.container


@router.get("/containers", tags=["containers"], summary="List containers", responses=problems(422))
async def listing(
    query: Annotated[ListQuery, Query()], caller: By, using: Using
) -> ContainersAnswer:
    """The tenant's containers, oldest first."""
    found = using.containers.list(caller.tenant, query.state)
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
    return await using.containers.get(caller.tenant, container)


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
    found = await using.containers.delete(caller.tenant, container)
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
    pod = await using.containers.find(caller.tenant, container)
    state = (await using.containers.get(caller.tenant, container)).state
    if state in (State.QUEUED, State.RESERVING, State.STARTING):
        raise ProblemError(Problem.NOT_STARTED, f"the container is {state}; try again")
    stream = await using.streams.open(
        caller.tenant,
        pod["metadata"]["namespace"],
        container,
        follow=query.follow,
        tail=query.tail,
        since=query.since,
        expires=caller.expires,
    )
    return LogResponse(stream)


@router.get(
    "/containers/{container}/events",
    tags=["containers"],
    summary="What happened to a container",
    responses=problems(404, 422),
)
async def events(container: Id, caller: By, using: Using) -> EventsAnswer:
    """What happened to it, oldest first; kept for an hour."""
    return EventsAnswer(items=await using.containers.events(caller.tenant, container))


@router.get("/capacity", tags=["tenancy"], summary="What the cluster has to give")
async def capacity_now(caller: By, using: Using) -> CapacityAnswer:
    """Partitions and GPUs that are free, and the tenant's own share. Nothing about other tenants."""
    tenancy = using.tenancies.of(caller.tenant)
    phases = phases_of(using.store.leases.all())
    hosts = using.settings.hosts
    away = using.store.outages(host.name for host in hosts)
    return CapacityAnswer(
        gpus=capacity_of_gpus(hosts, phases, away),
        sizes=capacity_by_size(hosts, phases, away),
        tenant=ShareAnswer(quota=tenancy.gpus, used=tenancy.gpus_used),
    )


@router.get("/tenancy", tags=["tenancy"], summary="The caller's tenancy")
async def tenancy_now(caller: By, using: Using) -> TenancyAnswer:
    """Whether it is ready, what it allows and what is used of it."""
    tenancy = using.tenancies.of(caller.tenant)
    return TenancyAnswer(
        tenant=tenancy.tenant,
        ready=tenancy.ready,
        reason=tenancy.reason,
        gpus=ShareAnswer(quota=tenancy.gpus, used=tenancy.gpus_used),
        gpu_sizes=list(tenancy.sizes),
        images=list(tenancy.images),
        containers=using.containers.count(tenancy.tenant),
        max_containers=using.settings.api.max_containers,
        volumes=using.tenancies.volumes(tenancy),
        quota=tenancy.hard,
        used=tenancy.used,
    )


def _place(container: ContainerAnswer) -> tuple[str, str]:
    return container.created_at, container.id
