"""A machine's firmware inventory, read from its management controller: out of band, past any tenant."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpuclusters.domain.firmware import concerns

REQUEST_SECONDS = 15.0
REQUESTS = 4
"""Requests at once; management controllers are small machines."""
MAX_BYTES = 4 * 1024 * 1024
_INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"


class RedfishError(Exception):
    """The controller did not answer as it should; one sentence."""


class Redfish:
    """One management controller, its certificate pinned where one is given."""

    def __init__(self, url: str, user: str, password: str, certificate: str | None) -> None:
        self._place = urlsplit(url).netloc
        self._client = httpx.AsyncClient(
            base_url=url,
            auth=httpx.BasicAuth(user, password),
            verify=_trust(certificate),
            timeout=REQUEST_SECONDS,
            trust_env=False,
            headers={"Accept": "application/json"},
            limits=httpx.Limits(max_connections=REQUESTS),
        )
        self._turn = asyncio.Semaphore(REQUESTS)
        self._queued: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def inventory(self, module: int, prefixes: Sequence[str]) -> Mapping[str, str | None]:
        """Versions of the items that concern one GPU and begin with one of the prefixes.

        Raises:
            RedfishError: not reached, refused, or not what Redfish says.
        """
        paths = await self._members()
        wanted = {
            item: path
            for item, path in paths.items()
            if concerns(item, module) and item.startswith(tuple(prefixes))
        }
        versions = await asyncio.gather(*(self._version(path) for path in wanted.values()))
        return dict(zip(wanted, versions, strict=True))

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    async def _members(self) -> dict[str, str]:
        """Path by id, over all pages."""
        found: dict[str, str] = {}
        path: str | None = _INVENTORY
        pages = 0
        while path is not None:
            pages += 1
            if pages > 100:
                raise RedfishError(f"the BMC {self._place} has an inventory without end")
            page = await self._get(path)
            for member in page.get("Members") or ():
                address = member.get("@odata.id") if isinstance(member, dict) else None
                if not isinstance(address, str) or not address.startswith("/"):
                    raise RedfishError(f"the BMC {self._place} lists an item without an address")
                found[address.rstrip("/").rsplit("/", 1)[-1]] = address
            following = page.get("Members@odata.nextLink")
            path = following if isinstance(following, str) and following.startswith("/") else None
        return found

    async def _version(self, path: str) -> str | None:
        version = (await self._get(path)).get("Version")
        return version if isinstance(version, str) else None

    async def _get(self, path: str) -> dict[str, Any]:
        """What is at the path, read after this was asked.

        Eight GPUs that are verified at once ask for much the same: a request that has not begun yet
        answers all who wait for it.
        """
        task = self._queued.get(path)
        if task is None:
            task = asyncio.create_task(self._fetch(path), name=f"GET {path}")
            task.add_done_callback(_look_at)
            self._queued[path] = task
        return await asyncio.shield(task)

    async def _fetch(self, path: str) -> dict[str, Any]:
        try:
            async with self._turn:
                # From here on it is too late to wait for this one.
                self._queued.pop(path, None)
                return await self._request(path)
        finally:
            if self._queued.get(path) is asyncio.current_task():
                del self._queued[path]

    async def _request(self, path: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answer = await self._client.get(path)
        except (httpx.HTTPError, TimeoutError, ssl.SSLError) as error:
            said = str(error) or "no answer in time"
            raise RedfishError(f"the BMC {self._place} does not answer: {said}") from error
        if answer.status_code != httpx.codes.OK:
            raise RedfishError(
                f"the BMC {self._place} answered {answer.status_code} to GET {path}"
                + ("; check its user and password" if answer.status_code in (401, 403) else "")
            )
        if len(answer.content) > MAX_BYTES:
            raise RedfishError(f"the BMC {self._place} answered with {len(answer.content)} bytes")
        try:
            body = answer.json()
        except ValueError as error:
            raise RedfishError(f"the BMC {self._place} answered GET {path} not in JSON") from error
        if not isinstance(body, dict):
            raise RedfishError(f"the BMC {self._place} answered GET {path} with no object")
        return body


def _look_at(task: asyncio.Task[dict[str, Any]]) -> None:
    """Nobody may be waiting any more: an error is then nobody's, and not worth a warning."""
    if not task.cancelled():
        task.exception()


def _trust(certificate: str | None) -> ssl.SSLContext:
    """The pinned certificate alone, whatever name it bears; without one the system's authorities."""
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cadata=certificate)
    context.check_hostname = (
        False  # BMCs sign for names that nobody uses; the certificate is pinned
    )
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
