"""The public API of a `caas` cluster as a customer calls it: one request, one answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

from gpuclusters.adapters.errors import UnreachableError

_TIMEOUT = urllib3.Timeout(connect=5.0, read=30.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; a body that is no JSON is None."""

    status: int
    body: Any

    @property
    def said(self) -> str:
        """For a person."""
        if isinstance(self.body, Mapping) and self.body.get("title"):
            detail = self.body.get("detail")
            return f"{self.status} {self.body['title']}" + (f": {detail}" if detail else "")
        return str(self.status)


class ContainerApi:
    """One API, called with whatever token the caller gives."""

    def __init__(self, url: str, *, ca_certificate: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=False, ca_cert_data=ca_certificate
        )

    @property
    def place(self) -> str:
        """As errors name it."""
        return f"API {self._url}"

    def call(
        self, method: str, path: str, token: str | None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        """Send one request.

        Raises:
            UnreachableError: nobody answered.
        """
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = self._pool.request(
                method, self._url + path, headers=headers, json=None if body is None else dict(body)
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(
                self.place,
                f"{method} {path}",
                type(error).__name__,
                "check that the API runs and that its address is right",
            ) from error
        try:
            return Answer(response.status, json.loads(response.data))
        except ValueError:
            return Answer(response.status, None)
