"""What the API answers beside containers: every refusal as a problem of RFC 9457, whose type is stable."""

import json
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from caas.cluster import ClusterError
from gpuclusters.container_api.container import ContainerAnswer
from gpuclusters.container_api.request import Answer

CONTENT_TYPE = "application/problem+json"
TYPES = "https://gpu-clusters.dev/problems/"
"""Before each type. They are names; nothing has to be behind the address."""
_QUOTA = re.compile(r"exceeded quota: \S+, requested: (\S+), used: (\S+), limited: (\S+)")
_LIMIT = re.compile(r"((?:maximum|minimum) \S+ usage per \S+ is [^,\]]+(?:, but \w+ is [^,.\]]+)?)")
_POLICY = re.compile(r"denied request: (.*)$", re.S)
_UNPROCESSABLE = 422
_log = logging.getLogger(__name__)


class Problem(Enum):
    """What can be wrong: name, status, title, and after how many seconds to ask again where that may help."""

    MALFORMED = ("malformed-request", 400, "The request is not what HTTP or JSON allow")
    UNAUTHENTICATED = ("unauthenticated", 401, "A valid bearer token is needed")
    NO_TENANCY = ("no-tenancy", 403, "The token's tenant has no tenancy here")
    OPERATORS_ONLY = ("operators-only", 403, "Only operators may read this")
    REFUSED = ("refused-by-policy", 403, "The cluster's policies refuse this container")
    NOT_FOUND = ("not-found", 404, "There is nothing here")
    METHOD = ("method-not-allowed", 405, "This cannot be done here")
    TIMEOUT = ("request-timeout", 408, "The request did not arrive in time")
    QUOTA = ("quota-exceeded", 409, "The tenancy's quota does not allow it")
    TOO_MANY_CONTAINERS = ("too-many-containers", 409, "The tenant has too many containers")
    NOT_STARTED = ("not-started", 409, "The container has not started yet", 5)
    VOLUME = ("volume-not-allowed", 409, "The tenant has no such volume")
    TENANCY_ENDING = ("tenancy-ending", 409, "The tenancy is being removed")
    TOO_LARGE = ("body-too-large", 413, "The body is too large")
    MEDIA_TYPE = ("unsupported-media-type", 415, "The body must be JSON")
    INVALID = ("invalid-request", 422, "The request says something that cannot be")
    SIZE_NOT_ALLOWED = ("size-not-allowed", 422, "The tenancy does not allow this number of GPUs")
    IMAGE = ("image-not-allowed", 422, "The tenancy does not allow this image")
    LIMIT = ("limit-exceeded", 422, "One container may not have that much")
    KEY_REUSED = ("idempotency-key-reused", 422, "The key belongs to another request")
    RATE = ("rate-limited", 429, "Too many requests")
    TOO_MANY_STREAMS = ("too-many-streams", 429, "Too many logs are followed at once", 5)
    HEADERS_TOO_LARGE = ("headers-too-large", 431, "The headers are too large")
    INTERNAL = ("internal-error", 500, "The API failed")
    CLUSTER_AWAY = ("cluster-unavailable", 503, "The cluster does not answer", 2)
    KEYS_AWAY = ("issuer-unavailable", 503, "Tokens cannot be checked at present", 10)
    TENANCY_NOT_READY = ("tenancy-not-ready", 503, "The tenancy's isolation is not enforced yet", 5)
    VOLUME_NOT_READY = ("volume-not-ready", 503, "A volume cannot be mounted yet", 10)
    LOGS_AWAY = ("logs-unavailable", 503, "The log cannot be read at present", 5)
    BUSY = ("busy", 503, "Too many connections")

    def __init__(self, code: str, status: int, title: str, again: int = 0) -> None:
        self.code, self.status, self.title, self.again = code, status, title, again
        self.uri = TYPES + code

    def answer(self, detail: str, request_id: str) -> dict[str, Any]:
        """The members that every problem has."""
        return {
            "type": self.uri,
            "title": self.title,
            "status": self.status,
            "detail": detail,
            "requestId": request_id,
        }


@dataclass
class ProblemError(Exception):
    """Ends a request with a problem.

    `detail` is one sentence with the values and the way out, never a secret, never another tenant's; `more`
    are members beside those of the standard.
    """

    problem: Problem
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.problem.again:
            self.headers = {"Retry-After": str(self.problem.again), **self.headers}

    def __str__(self) -> str:
        return self.detail

    def body(self, request_id: str) -> bytes:
        said = {**self.problem.answer(self.detail, request_id), **self.more}
        return json.dumps(said, ensure_ascii=False).encode()

    def response(self) -> bytes:
        """As a whole answer of HTTP/1.1 to somebody who made no request; the connection ends with it."""
        body = self.body(secrets.token_hex(8))
        head = (
            f"HTTP/1.1 {self.problem.status} {self.problem.title}\r\n"
            f"content-type: {CONTENT_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body


def unauthenticated(detail: str, error: str | None = "invalid_token") -> ProblemError:
    """401 with the challenge of RFC 6750; `error` is None where there was no token at all."""
    challenge = 'Bearer realm="gpu-clusters"' + (f', error="{error}"' if error else "")
    return ProblemError(Problem.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})


def internal() -> ProblemError:
    return ProblemError(Problem.INTERNAL, "this is our fault; tell the operator the request id")


def not_found() -> ProblemError:
    """Of a container that ended, is another tenant's or never was: nobody can tell which."""
    return ProblemError(Problem.NOT_FOUND, "the tenant has no such container")


def invalid(faults: Iterable[tuple[str, str]], problem: Problem = Problem.INVALID) -> ProblemError:
    """Every fault of a request as field and message, and never what was sent: that may be a secret."""
    errors = [{"field": field, "message": message} for field, message in faults]
    short = "; ".join(f"{one['field']}: {one['message']}" for one in errors[:5])
    return ProblemError(problem, short or "the request is not valid", {"errors": errors})


def is_away(error: ClusterError) -> bool:
    """Whether the cluster did not decide, so that the same may go well later."""
    return error.status in (0, 429) or error.status >= 500


def cluster_away() -> ProblemError:
    """The problem of a cluster that does not answer; what it is called is nobody's business."""
    return ProblemError(Problem.CLUSTER_AWAY, "the cluster does not answer; try again")


def just_started() -> ProblemError:
    """The problem of an API that does not know the cluster yet."""
    return ProblemError(Problem.CLUSTER_AWAY, "the API has just started; try again")


def refused(error: ClusterError, tenant: str) -> ProblemError:
    """The problem behind the API server's refusal to make a pod."""
    said = str(error)
    if found := _QUOTA.search(said):
        requested, used, allowed = (_amounts(part) for part in found.groups())
        short = ", ".join(
            f"{name.removeprefix('requests.').removeprefix('limits.')}: {requested[name]} asked for, "
            f"{used.get(name, '0')} of {allowed.get(name, '0')} used"
            for name in requested
        )
        more = {"requested": requested, "used": used, "allowed": allowed}
        return ProblemError(Problem.QUOTA, f"{short}; delete a container or ask for less", more)
    if "is being terminated" in said:
        return ProblemError(Problem.TENANCY_ENDING, "the tenancy is being removed")
    if "status unknown for quota" in said or error.reason == "NotFound":
        waits = "the tenancy's isolation is being set up; try again"
        return ProblemError(Problem.TENANCY_NOT_READY, waits)
    if found := _LIMIT.search(said):
        return ProblemError(Problem.LIMIT, found[1])
    _log.warning("the cluster refused a container of %s: %s", tenant, error)
    if error.status == _UNPROCESSABLE:
        return ProblemError(Problem.INVALID, "the cluster cannot make a container of this request")
    found, why = (
        _POLICY.search(said),
        "the cluster's policies refuse this container; its operator sees why",
    )
    return ProblemError(Problem.REFUSED, found[1].strip()[:500] if found else why)


def _amounts(text: str) -> dict[str, Any]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def answer_all(app: FastAPI) -> None:
    """Let the application answer every error with its problem."""

    async def answered(request: Request, error: Exception) -> Response:
        problem = _problem(error)
        return Response(
            problem.body(request.scope["state"]["request_id"]),
            status_code=problem.problem.status,
            media_type=CONTENT_TYPE,
            headers=dict(problem.headers),
        )

    for kind in (ProblemError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answered)


def _problem(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            faults = error.errors()
            if any(fault["type"] == "json_invalid" for fault in faults):
                return ProblemError(Problem.MALFORMED, "the body is not JSON")
            return invalid((".".join(map(str, one["loc"])), _said(one)) for one in faults)
        case HTTPException(status_code=404):
            return ProblemError(Problem.NOT_FOUND, "there is no such address; see /docs")
        case HTTPException(status_code=405):
            detail = "see /docs for what can be done here"
            return ProblemError(Problem.METHOD, detail, headers=error.headers or {})
        case HTTPException():
            return ProblemError(Problem.MALFORMED, "the body cannot be read")
    return internal()


def _said(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "string_pattern_mismatch" and fault["loc"][-1] == "image":
        return "must be an image reference with a tag or a digest, like registry.example.com/x:1"
    if fault["type"] == "extra_forbidden":
        return "there is no such field"
    return str(fault["msg"])


class ContainersAnswer(Answer):
    """A page of containers, oldest first."""

    items: list[ContainerAnswer]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null at the end.")]


class EventAnswer(Answer):
    """Something that happened to a container."""

    time: str
    type: Annotated[str, Field(examples=["Normal"])]
    reason: Annotated[str, Field(examples=["Pulled"])]
    message: str | None
    count: int


class EventsAnswer(Answer):
    """What happened, oldest first; kept for an hour."""

    items: list[EventAnswer]


_Unschedulable = Annotated[
    int, Field(description="Would be free, but their machine is out of service, or away.")
]


class SizeCapacityAnswer(Answer):
    """Partitions of one size; those of different sizes overlap."""

    gpus: Annotated[int, Field(examples=[2])]
    total: int
    free: Annotated[int, Field(description="Requests of this size that would start at once.")]
    unschedulable: _Unschedulable
    quarantined: Annotated[int, Field(description="Lost until their GPUs are repaired.")]


class GpuCapacityAnswer(Answer):
    """GPUs of the cluster."""

    total: int
    free: int
    unschedulable: _Unschedulable
    unschedulable_by: Annotated[
        Mapping[str, int],
        Field(
            description="The same by what is the matter with the machine. Cordoned: taken out of "
            "service; NotReady: it does not answer; Gone: the cluster does not know it.",
            examples=[{"NotReady": 8}],
        ),
    ]
    recycling: Annotated[int, Field(description="Between two tenants: reset, cleared, verified.")]
    quarantined: int


class ShareAnswer(Answer):
    """The tenant's own."""

    quota: int
    used: int


class CapacityAnswer(Answer):
    """What there is, and what of it the tenant may have and has."""

    gpus: GpuCapacityAnswer
    sizes: list[SizeCapacityAnswer]
    tenant: ShareAnswer


class VolumeAnswer(Answer):
    """A folder on a file server that the tenant's containers may mount."""

    name: Annotated[str, Field(examples=["data"])]
    size_gib: Annotated[int | float | None, Field(examples=[1024])]
    read_only: bool
    ready: Annotated[bool, Field(description="Whether it can be mounted.")]


class TenancyAnswer(Answer):
    """The caller's tenancy."""

    tenant: Annotated[str, Field(examples=["acme"])]
    ready: Annotated[bool, Field(description="Whether every part of its isolation is enforced.")]
    reason: Annotated[str | None, Field(description="One word why not.")]
    gpus: ShareAnswer
    gpu_sizes: Annotated[list[int], Field(examples=[[1, 2]])]
    images: Annotated[
        list[str],
        Field(
            description="Registries, and paths at registries, that images come from; empty: any public one.",
            examples=[["registry.example.com/research"]],
        ),
    ]
    containers: Annotated[int, Field(description="That exist, ended ones included.")]
    max_containers: int
    volumes: list[VolumeAnswer]
    quota: Annotated[Mapping[str, str], Field(description="In Kubernetes' quantities.")]
    used: Mapping[str, str]


class Fault(Answer):
    """One thing that is wrong with a request."""

    field: Annotated[str, Field(examples=["body.gpus"])]
    message: Annotated[str, Field(examples=["Input should be 1, 2, 4 or 8"])]


class ProblemAnswer(Answer):
    """RFC 9457. `type` is stable; branch on it."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    type: Annotated[str, Field(examples=["https://gpu-clusters.dev/problems/quota-exceeded"])]
    title: Annotated[str, Field(examples=["The tenancy's quota does not allow it"])]
    status: Annotated[int, Field(examples=[409])]
    detail: str
    request_id: Annotated[str, Field(description="Also in the header X-Request-Id.")]
    errors: Annotated[
        list[Fault] | None, Field(description="What is wrong, where several things can be.")
    ] = None
