"""One kept connection pool to the API server: requests in JSON, timeouts, retries.

The client library reads the configuration, renews tokens and checks certificates; its models and its
own limits are not used, because an object that passes through a model loses what the model does not know.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import kube_config

JSON = "application/json"
CONNECTIONS = 256
"""Requests at once; HTTP/1.1 carries one per connection."""
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 10.0

_TOO_MANY = 429
_NEVER_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_TRY_LATER = frozenset({500, 502, 503, 504})
_log = logging.getLogger(__name__)


class ClusterError(Exception):
    """The API server did not do what it was asked; the text is one sentence with the reason.

    `status` is the HTTP status, 0 when there was no answer; `reason` is Kubernetes' own word for it
    (`NotFound`, `AlreadyExists`, `Forbidden`, ...), `Unreachable` when there was no answer.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def ungranted(self) -> bool:
        """Whether our account has no such right; an admission rule's refusal has another sentence."""
        text = str(self)
        return self.status == 403 and " cannot " in text and " resource " in text


class ConflictError(ClusterError):
    """Somebody else changed or made the object first, or owns a field (status 409)."""


class Connection:
    """A pool of connections as one identity."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.place = f"API server {client.configuration.host}"

    @classmethod
    async def open(cls, kubeconfig: Path | None = None) -> Connection:
        """As the service account of the pod, or as `kubeconfig` or the variable KUBECONFIG says.

        Raises:
            ClusterError: neither is there, or it cannot be used.
        """
        configuration = Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        named = kubeconfig or os.environ.get("KUBECONFIG")
        try:
            if named:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    str(named), client_configuration=configuration, persist_config=False
                )
            else:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=configuration
                )
            # Else a thread is asked before each request whether the environment names a proxy.
            configuration.client_session_kwargs = {
                "trust_env": _has_proxy(configuration.host),
                "cookie_jar": aiohttp.DummyCookieJar(),
            }
            client = ApiClient(configuration)
        except (config.ConfigException, OSError, ValueError) as error:
            where = f"kubeconfig {named}" if named else "service account of this pod"
            raise ClusterError(f"{where} cannot be used: {error}") from error
        finally:
            # Keys embedded in a kubeconfig were written to files for OpenSSL, which has read them.
            kube_config._cleanup_temp_files()  # type: ignore[no-untyped-call]
        return cls(client)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def ask(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: object = None,
        *,
        content_type: str = JSON,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """The decoded answer.

        A refusal for overload is repeated as the server says. Where the outcome is unknown, the
        request is repeated only if `repeatable`, which means that doing it twice is doing it once.

        Raises:
            ConflictError: status 409.
            ClusterError: not reached, or any other refusal.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._response(method, path, query, body, content_type, TIMEOUT) as got:
                    status, wait, text = (
                        got.status,
                        got.headers.get("Retry-After"),
                        await got.read(),
                    )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # A connection that was never made carried nothing to the server.
                harmless = repeatable or isinstance(error, _NEVER_CONNECTED)
                if not harmless or attempt >= ATTEMPTS:
                    raise self._unreachable(method, path, error) from error
                await asyncio.sleep(_pause(attempt, None))
                continue
            if status < 300:
                return _decoded(text)
            again = status == _TOO_MANY or (status in _TRY_LATER and repeatable)
            if not again or attempt >= ATTEMPTS:
                raise _refused(method, path, status, _decoded(text))
            await asyncio.sleep(_pause(attempt, wait))

    @asynccontextmanager
    async def lines(
        self, path: str, query: Sequence[tuple[str, str]], *, idle_seconds: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer that comes line by line; it breaks when nothing came for `idle_seconds`.

        Raises:
            ClusterError: not reached, refused, or broken off.
        """
        async with self.pieces(path, query, idle_seconds=idle_seconds) as pieces:
            yield _lines(pieces)

    @asynccontextmanager
    async def pieces(
        self, path: str, query: Sequence[tuple[str, str]], *, idle_seconds: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The same as it arrives, which is bounded even where a line is not."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=idle_seconds)
        try:
            async with self._response("GET", path, query, None, JSON, timeout) as response:
                if response.status >= 300:
                    answer = _decoded(await response.read())
                    raise _refused("GET", path, response.status, answer)
                yield response.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable("GET", path, error) from error

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: object,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": JSON, "Content-Type": content_type, **self._client.default_headers}
        known = self._client.configuration
        if token := (await known.auth_settings()).get("BearerToken"):
            headers[token["key"]] = token["value"]
        url = f"{known.host}{path}{'?' + urlencode(query, quote_via=quote) if query else ''}"
        # Not through the client's own methods: they walk through every object to find models in it.
        answer = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        try:
            yield response
        finally:
            # Releases the connection if all was read, else closes it.
            response.release() if response.content.at_eof() else response.close()

    def _unreachable(self, method: str, path: str, error: BaseException) -> ClusterError:
        said = str(error) or type(error).__name__
        return ClusterError(
            f"{self.place} did not answer {method} {path}: {said}", reason="Unreachable"
        )


def _has_proxy(address: str) -> bool:
    """Whether the environment names a proxy for requests to this address."""
    to = urlsplit(address)
    proxied = to.scheme in getproxies() or "all" in getproxies()
    return proxied and not proxy_bypass(to.netloc)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines of any length; the reader's own are cut at the size of its buffer."""
    rest = b""
    async for chunk in pieces:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


def _decoded(text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = None
    return (
        answer
        if isinstance(answer, dict)
        else {"message": text[:300].decode(errors="replace").strip()}
    )


def _refused(method: str, path: str, status: int, answer: Mapping[str, Any]) -> ClusterError:
    said = str(answer.get("message") or "no reason given")
    kind = ConflictError if status == 409 else ClusterError
    message = f"the API server refused {method} {path} with {status}: {said}"
    return kind(message, status=status, reason=str(answer.get("reason") or ""))


def _pause(attempt: int, wait: str | None) -> float:
    """Seconds before the next attempt: what the server says, else doubling, with jitter."""
    stated = float(wait) if wait and wait.isdigit() else 0.1 * 2**attempt
    return min(stated, LONGEST_PAUSE_SECONDS) * random.uniform(1.0, 1.25)  # noqa: S311
