"""The application: routes, services and the gate in front of them, put together."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from caas.api import routes
from caas.api.callers import Callers
from caas.api.containers import Containers
from caas.api.gate import BODY_SECONDS, Gate
from caas.api.jwks import AGAIN_SECONDS, IssuerKeys
from caas.api.kube import SECONDS, Kube
from caas.api.limits import RateLimit, StrangerLimit
from caas.api.openapi import DESCRIPTION, describe
from caas.api.page import content_security_policy, page
from caas.api.problems import CONTENT_TYPE, Problem, ProblemError
from caas.api.store import Store
from caas.api.streams import LogStreams
from caas.api.tenancies import Tenancies
from caas.api.volumes import Volumes
from caas.cluster import Cluster, ClusterError
from caas.settings import Settings
from gpuclusters.domain.ports import ObjectKind

_NAMESPACE = ObjectKind("", "v1", "namespaces", "Namespace", namespaced=False)
_READY_SECONDS = 2.0
"""How long an answer to `readyz` stands, so that asking often costs the cluster nothing."""


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
    store, kube = Store(cluster), Kube(cluster, seconds=kube_seconds)
    tenancies, volumes = Tenancies(settings, store), Volumes(store)
    streams = LogStreams(cluster, clock)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with store.running():
            asking = asyncio.create_task(_until_known(keys))
            try:
                yield
            finally:
                streams.end()
                asking.cancel()
                with suppress(asyncio.CancelledError):
                    await asking

    app = FastAPI(
        title="gpu-clusters",
        version="1",
        description=DESCRIPTION,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_tags=[
            {"name": "containers", "description": "Containers with GPUs."},
            {
                "name": "tenancy",
                "description": "What the tenant may have and the cluster can give.",
            },
        ],
    )
    app.state.services = routes.Services(
        settings=settings,
        kube=kube,
        store=store,
        tenancies=tenancies,
        volumes=volumes,
        containers=Containers(settings, kube, store, tenancies, volumes),
        streams=streams,
    )
    app.include_router(routes.router)
    _refusals(app)
    describe(app)
    _for_people(app)
    rate = RateLimit(settings.api.requests_per_second, settings.api.burst, time.monotonic)
    gate = Gate(
        app,
        Callers(settings.api, keys, clock),
        rate,
        strangers or StrangerLimit(time.monotonic),
        max_body_bytes=settings.api.max_body_bytes,
        body_seconds=body_seconds,
        stop=streams.end,
    )
    return Program(gate, Condition(store, keys, _Reachable(kube, settings.namespace)))


async def _until_known(keys: IssuerKeys) -> None:
    """The first caller should not have to wait for the issuer."""
    while not keys.known:
        await keys.renew()
        await asyncio.sleep(0 if keys.known else AGAIN_SECONDS)


class _Reachable:
    """Whether the API server answers; asked at most every two seconds."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._asked = float("-inf")
        self._answers = False
        self._one_at_a_time = asyncio.Lock()

    async def now(self) -> bool:
        async with self._one_at_a_time:
            if time.monotonic() - self._asked >= _READY_SECONDS:
                try:
                    await self._kube.get(_NAMESPACE, self._namespace)
                    self._answers = True
                except ClusterError:
                    self._answers = False
                self._asked = time.monotonic()
            return self._answers


def _for_people(app: FastAPI) -> None:
    made = functools.cache(lambda: page(app.openapi()))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(
            made(),
            media_type="text/html",
            headers={"Content-Security-Policy": content_security_policy()},
        )


class Condition:
    """Whether the program goes on, and whether requests should be sent to it."""

    def __init__(self, store: Store, keys: IssuerKeys, reachable: _Reachable) -> None:
        self._store = store
        self._keys = keys
        self._reachable = reachable

    def broken(self) -> str | None:
        """Why it must be started again."""
        return None if self._store.alive else "a watch of the cluster has ended"

    async def waits_for(self) -> str | None:
        """Why requests should go elsewhere."""
        if not self._keys.known:
            return "the issuer has given no keys yet"
        if not self._store.synced or not await self._reachable.now():
            return "the cluster does not answer"
        return None


def _refusals(app: FastAPI) -> None:
    async def problem(request: Request, error: Exception) -> Response:
        return _answer(request, error if isinstance(error, ProblemError) else _internal())

    async def invalid(request: Request, error: Exception) -> Response:
        faults = error.errors() if isinstance(error, RequestValidationError) else []
        return _answer(request, _invalid(faults))

    async def http(request: Request, error: Exception) -> Response:
        return _answer(
            request, _of_http(error) if isinstance(error, HTTPException) else _internal()
        )

    app.add_exception_handler(ProblemError, problem)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, problem)


def _answer(request: Request, error: ProblemError) -> Response:
    return Response(
        error.body(request.scope["state"]["request_id"]),
        status_code=error.problem.status,
        media_type=CONTENT_TYPE,
        headers=dict(error.headers),
    )


def _internal() -> ProblemError:
    return ProblemError(Problem.INTERNAL, "this is our fault; tell the operator the request id")


def _of_http(error: HTTPException) -> ProblemError:
    if error.status_code == Problem.NOT_FOUND.status:
        return ProblemError(Problem.NOT_FOUND, "there is no such address; see /docs")
    if error.status_code == Problem.METHOD.status:
        return ProblemError(
            Problem.METHOD, "see /docs for what can be done here", headers=error.headers or {}
        )
    return ProblemError(Problem.MALFORMED, "the body cannot be read")


def _invalid(faults: Sequence[Mapping[str, Any]]) -> ProblemError:
    """Every fault with its place, and never with what was sent: that may be a secret."""
    if any(fault["type"] == "json_invalid" for fault in faults):
        return ProblemError(Problem.MALFORMED, "the body is not JSON")
    errors = [
        {"field": ".".join(str(part) for part in fault["loc"]), "message": _said(fault)}
        for fault in faults
    ]
    short = "; ".join(f"{one['field']}: {one['message']}" for one in errors[:5])
    return ProblemError(Problem.INVALID, short or "the request is not valid", {"errors": errors})


def _said(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "string_pattern_mismatch" and fault["loc"][-1] == "image":
        return "must be an image reference with a tag or a digest, like registry.example.com/x:1"
    if fault["type"] == "extra_forbidden":
        return "there is no such field"
    return str(fault["msg"])
