"""Requests to the Compute API: one JSON answer for one call, errors in our words, waits with an end.

Source: Compute Engine API v1; an operation is waited for with `operations.wait`, which answers after two
minutes at the latest.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from gpuclusters.core.errors import (
    CommandTimeoutError,
    DeniedError,
    InvalidAnswerError,
    UnreachableError,
)

ENDPOINT = "https://compute.googleapis.com/compute/v1/"
# `operations.wait` keeps a call open for up to two minutes.
_TIMEOUT = urllib3.Timeout(connect=10.0, read=150.0)
# Only calls that change nothing are repeated, for they may have been carried out.
_RETRIES = urllib3.Retry(
    total=5,
    connect=3,
    read=2,
    redirect=0,
    status=4,
    status_forcelist=(500, 502, 503, 504),
    allowed_methods=("GET",),
    backoff_factor=0.5,
    raise_on_status=False,
)
# A call that is answered so was not carried out, so that any may be repeated.
_LIMITED = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")
_LIMITED_STATUS = 429
_LIMITED_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_NOT_FOUND = 404
_DENIED = (401, 403)
_ERRORS_FROM = 400
_LONGEST_BODY = 300
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ApiError(Exception):
    """The API said no, with a code; who asked knows what it means there."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message


class GoogleRest:
    """Calls of one endpoint as one account."""

    def __init__(
        self,
        token: Callable[[], str],
        endpoint: str = ENDPOINT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take where and as whom, and how to wait.

        Raises:
            InvalidAnswerError: the endpoint is neither https nor on this computer: a token would be seen.
        """
        parts = urlsplit(endpoint)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise InvalidAnswerError(
                endpoint, "use it", "it is not https", "write gcp:computeCustomEndpoint with https"
            )
        self._token = token
        self._sleep = sleep
        self._endpoint = endpoint if endpoint.endswith("/") else f"{endpoint}/"
        self._pool = urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """One object or page.

        Raises:
            ApiError: the API said no.
            AdapterError: it cannot be reached, does not let us in, or answers nonsense.
        """
        tail = f"?{urlencode(query)}" if query else ""
        return self._call("GET", f"{path}{tail}", None)

    def pages(self, path: str, **query: str) -> list[dict[str, Any]]:
        """All pages of a list."""
        found = [self.get(path, **query)]
        while mark := found[-1].get("nextPageToken"):
            found.append(self.get(path, **query, pageToken=str(mark)))
        return found

    def operate(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        """Begin an operation and wait until it is done; the operation, which may hold an error.

        Raises:
            CommandTimeoutError: it is not done in time; it goes on at Google.
        """
        end = time.monotonic() + seconds
        operation = self._call(method, path, body)
        wait = f"{urlsplit(str(operation.get('selfLink', ''))).path}/wait"
        place = wait.partition("/projects/")[2]
        while operation.get("status") != "DONE":
            if time.monotonic() >= end or not place:
                raise CommandTimeoutError(
                    str(operation.get("targetLink") or path).partition("/projects/")[2] or path,
                    str(operation.get("operationType") or method.lower()),
                    f"it is {operation.get('status')} after {seconds:g} s",
                    "it goes on at Google: see `gcloud compute operations list`, then run again",
                )
            operation = self._call("POST", f"projects/{place}", None)
        return operation

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        for pause in _LIMITED_PAUSES:
            try:
                return self._once(method, path, body)
            except ApiError as error:
                if error.status != _LIMITED_STATUS and error.code not in _LIMITED:
                    raise
            # Many machines begin at the same time; they should not come back at the same time.
            self._sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 (spreading, no secret)
        return self._once(method, path, body)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        where = urlsplit(self._endpoint).netloc
        tried = f"{method} {path.partition('?')[0]}"
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        try:
            answer = self._pool.request(
                method, f"{self._endpoint}{path}", headers=headers, json=body
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(
                where,
                tried,
                f"no answer ({type(error).__name__})",
                "check the network and proxies, then run again: what was begun is found and continued",
            ) from error
        return self._read(where, tried, answer.status, answer.data)

    def _read(self, where: str, tried: str, status: int, data: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(data or b"{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            shown = data[:_LONGEST_BODY].decode(errors="replace")
            raise InvalidAnswerError(
                where, tried, f"status {status} and no JSON: {shown!r}", "check proxies in between"
            )
        if status < _ERRORS_FROM:
            return parsed
        raise self._refused(where, tried, status, parsed.get("error") or {})

    def _refused(
        self, where: str, tried: str, status: int, error: Mapping[str, Any]
    ) -> ApiError | DeniedError:
        message = str(error.get("message") or "no reason given")
        first: Mapping[str, Any] = next(iter(error.get("errors") or [{}]), {})
        code = str(first.get("reason") or error.get("status") or status)
        if status in _DENIED and "quota" not in code.lower() and code not in _LIMITED:
            return DeniedError(
                where,
                tried,
                message,
                "give the account the role Compute Admin and Service Account User, and enable the"
                " Compute Engine API in the project",
            )
        return ApiError(status, code, message)


def is_absent(error: ApiError) -> bool:
    """Whether it says that there is no such thing."""
    return error.status == _NOT_FOUND
