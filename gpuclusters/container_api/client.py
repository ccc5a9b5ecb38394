"""The public API of a `caas` cluster as a customer calls it: one request, one answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

from gpuclusters.core.errors import UnreachableError

_TIMEOUT = urllib3.Timeout(connect=5.0, read=30.0)
_RETRIES = urllib3.Retry(
    connect=0, read=4, redirect=False, allowed_methods=("GET",), respect_retry_after_header=False
)
"""A read may be asked again: the API behind a connection may just have ended, or not be known yet."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; a body that is no JSON is text."""

    status: int
    body: Any

    @property
    def said(self) -> str:
        if isinstance(self.body, Mapping) and self.body.get("title"):
            detail = self.body.get("detail")
            return f"{self.status} {self.body['title']}" + (f": {detail}" if detail else "")
        return str(self.status)


class ContainerApi:
    """One API, called with whatever token the caller gives."""

    def __init__(
        self, url: str, *, ca_certificate: str | None = None, address: str | None = None
    ) -> None:
        """`ca_certificate` is text in PEM; `address` is where to connect, if not where the name leads."""
        self._url = url.rstrip("/")
        options: dict[str, Any] = {}
        self._at = self._url
        if address is not None:
            named = urllib3.util.parse_url(self._url)
            self._at = named._replace(host=address).url
            if named.scheme == "https":
                options = {"assert_hostname": named.host, "server_hostname": named.host}
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=_RETRIES, ca_cert_data=ca_certificate, **options
        )

    @property
    def target(self) -> str:
        return f"API {self._url}"

    def call(
        self,
        method: str,
        path: str,
        token: str | None,
        body: Mapping[str, Any] | None = None,
        *,
        second_token: str | None = None,
        key: str | None = None,
    ) -> Answer:
        """Send one request; a second token is a second header, `key` the Idempotency-Key.

        `UnreachableError` if nobody answers.
        """
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json"})
        if key is not None:
            headers.add("Idempotency-Key", key)
        for one in (token, second_token):
            if one is not None:
                headers.add("Authorization", f"Bearer {one}")
        try:
            response = self._pool.request(
                method, self._at + path, headers=headers, json=None if body is None else dict(body)
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(
                self.target,
                f"{method} {path}",
                type(getattr(error, "reason", None) or error).__name__,
                "check that the API runs and that its address is right",
            ) from error
        try:
            return Answer(response.status, json.loads(response.data))
        except ValueError:
            return Answer(response.status, response.data.decode(errors="replace"))
