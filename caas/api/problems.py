"""Every refusal of the API, as a problem of RFC 9457. The type is stable; programs branch on it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

CONTENT_TYPE = "application/problem+json"
TYPES = "https://gpu-clusters.dev/problems/"
"""Before each type. They are names; nothing has to be behind the address."""


class Problem(Enum):
    """What can be wrong: name, status, title."""

    MALFORMED = ("malformed-request", 400, "The request is not what HTTP or JSON allow")
    UNAUTHENTICATED = ("unauthenticated", 401, "A valid bearer token is needed")
    NO_TENANCY = ("no-tenancy", 403, "The token's tenant has no tenancy here")
    REFUSED = ("refused-by-policy", 403, "The cluster's policies refuse this container")
    NOT_FOUND = ("not-found", 404, "There is nothing here")
    METHOD = ("method-not-allowed", 405, "This cannot be done here")
    TIMEOUT = ("request-timeout", 408, "The request did not arrive in time")
    QUOTA = ("quota-exceeded", 409, "The tenancy's quota does not allow it")
    TOO_MANY_CONTAINERS = ("too-many-containers", 409, "The tenant has too many containers")
    NOT_STARTED = ("not-started", 409, "The container has not started yet")
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
    TOO_MANY_STREAMS = ("too-many-streams", 429, "Too many logs are followed at once")
    HEADERS_TOO_LARGE = ("headers-too-large", 431, "The headers are too large")
    INTERNAL = ("internal-error", 500, "The API failed")
    CLUSTER_AWAY = ("cluster-unavailable", 503, "The cluster does not answer")
    KEYS_AWAY = ("issuer-unavailable", 503, "Tokens cannot be checked at present")
    TENANCY_NOT_READY = ("tenancy-not-ready", 503, "The tenancy's isolation is not enforced yet")
    VOLUME_NOT_READY = ("volume-not-ready", 503, "A volume cannot be mounted yet")
    LOGS_AWAY = ("logs-unavailable", 503, "The log cannot be read at present")
    BUSY = ("busy", 503, "Too many connections")

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.value[1]

    @property
    def uri(self) -> str:
        """The type."""
        return TYPES + self.value[0]


@dataclass
class ProblemError(Exception):
    """Ends a request with a problem.

    Attributes:
        problem: which.
        detail: one sentence with the values and the way out; never a secret, never another tenant's.
        more: members beside those of the standard.
        headers: header fields of the answer.
    """

    problem: Problem
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail

    def body(self, request_id: str) -> bytes:
        """As it is sent."""
        _, status, title = self.problem.value
        said = {
            "type": self.problem.uri,
            "title": title,
            "status": status,
            "detail": self.detail,
            "requestId": request_id,
            **self.more,
        }
        return json.dumps(said, ensure_ascii=False).encode()

    def response(self) -> bytes:
        """As a whole answer of HTTP/1.1 to somebody who made no request; the connection ends with it."""
        _, status, title = self.problem.value
        body = self.body(secrets.token_hex(8))
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: {CONTENT_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body


def retry_after(problem: Problem, detail: str, seconds: int) -> ProblemError:
    """A problem that goes away by itself."""
    return ProblemError(problem, detail, headers={"Retry-After": str(seconds)})


def unauthenticated(detail: str, error: str | None = "invalid_token") -> ProblemError:
    """401 with the challenge of RFC 6750; `error` is None where there was no token at all."""
    challenge = 'Bearer realm="gpu-clusters"' + (f', error="{error}"' if error else "")
    return ProblemError(Problem.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})
