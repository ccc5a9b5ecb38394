"""A machine's firmware inventory, read from its management controller: out of band, past any tenant."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpuclusters.lease.firmware import InventoryError, Listing, concerns, shown, version_of
from gpuclusters.lease.model import QuarantineReason

REQUEST_SECONDS = 15.0
INVENTORY_SECONDS = 90.0
REQUESTS = 4
"""Requests at once; management controllers are small machines."""
MAX_BYTES = 4 * 1024 * 1024


class RedfishError(Exception):
    """The controller did not answer as it should; with a `reason` its GPU is quarantined for it."""

    def __init__(self, message: str, reason: QuarantineReason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class Redfish:
    """One management controller, its certificate pinned where one is given.

    It is not trusted: the login goes to the configured place alone; late, too large or broken is an error.
    """

    def __init__(self, url: str, user: str, password: str, certificate: str | None) -> None:
        self._url = url
        self._place = urlsplit(url).netloc
        self._client = httpx.AsyncClient(
            auth=httpx.BasicAuth(user, password),
            verify=_trust(certificate),
            timeout=REQUEST_SECONDS,
            trust_env=False,
            follow_redirects=False,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=REQUESTS),
        )
        self._turn = asyncio.Semaphore(REQUESTS)
        self._queued: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def inventory(
        self, module: int, prefixes: Sequence[str], seconds: float = INVENTORY_SECONDS
    ) -> Mapping[str, str | None]:
        """Versions of the items that concern one GPU and begin with one of the prefixes."""
        answered = 0

        async def get(url: str) -> dict[str, Any]:
            nonlocal answered
            body = await self._get(url)
            answered += 1
            return body

        try:
            async with asyncio.timeout(seconds):
                listing = Listing(self._url)
                url: str | None = listing.first
                while url is not None:
                    url = listing.add(url, await get(url))
                wanted = {
                    item: address
                    for item, address in listing.items.items()
                    if concerns(item, module) and item.startswith(tuple(prefixes))
                }
                bodies = await asyncio.gather(*map(get, wanted.values()))
                return {i: version_of(i, b) for i, b in zip(wanted, bodies, strict=True)}
        except TimeoutError:
            if not answered:
                raise self._silent("no answer in time") from None
            said = f"gave {answered} answers in {seconds:g} s and not its whole inventory"
            raise self._error(QuarantineReason.INVENTORY_SLOW, said) from None
        except InventoryError as error:
            raise self._error(error.reason, str(error)) from None

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, url: str) -> dict[str, Any]:
        """What is there, read after this was asked; a request not yet begun answers all who wait for it."""
        task = self._queued.get(url)
        if task is None:
            task = asyncio.create_task(self._fetch(url), name=f"GET {url}")
            task.add_done_callback(_look_at)
            self._queued[url] = task
        return await asyncio.shield(task)

    async def _fetch(self, url: str) -> dict[str, Any]:
        try:
            async with self._turn:
                # From here on it is too late to wait for this one.
                self._queued.pop(url, None)
                return self._object(url, await self._request(url))
        finally:
            if self._queued.get(url) is asyncio.current_task():
                del self._queued[url]

    async def _request(self, url: str) -> bytes:
        began = False
        try:
            async with asyncio.timeout(REQUEST_SECONDS), self._client.stream("GET", url) as answer:
                began = True
                self._look_at_head(url, answer)
                body = bytearray()
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        many = f"answers GET {_path(url)} with more than {MAX_BYTES:,} bytes"
                        raise self._error(QuarantineReason.INVENTORY_TOO_LARGE, many)
                return bytes(body)
        except httpx.InvalidURL as error:
            said = f"has a link that is no address: {shown(str(error))}"
            raise self._error(QuarantineReason.INVENTORY_MALFORMED, said) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            if not began:
                raise self._silent("no answer in time") from error
            said = f"did not end its answer to GET {_path(url)} within {REQUEST_SECONDS:g} s"
            raise self._error(QuarantineReason.INVENTORY_SLOW, said) from error
        except (httpx.HTTPError, ssl.SSLError) as error:
            if not began:
                raise self._silent(shown(str(error))) from error
            said = f"broke off its answer to GET {_path(url)}: {shown(str(error))}"
            raise self._error(QuarantineReason.INVENTORY_TRUNCATED, said) from error

    def _look_at_head(self, url: str, answer: httpx.Response) -> None:
        if answer.is_redirect:
            to = shown(answer.headers["location"])
            said = f"redirects GET {_path(url)} to {to}, which was not asked"
            raise self._error(QuarantineReason.INVENTORY_REDIRECTED, said)
        if answer.status_code != httpx.codes.OK:
            raise RedfishError(
                f"the BMC {self._place} answered {answer.status_code} to GET {_path(url)}"
                + ("; check its user and password" if answer.status_code in (401, 403) else "")
            )
        if answer.headers.get("content-encoding", "identity") != "identity":
            said = f"answers GET {_path(url)} in an encoding that was not asked for"
            raise self._error(QuarantineReason.INVENTORY_MALFORMED, said)

    def _object(self, url: str, content: bytes) -> dict[str, Any]:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            said = f"answers GET {_path(url)} with what is no JSON object, or only part of one"
            raise self._error(QuarantineReason.INVENTORY_MALFORMED, said)
        return body

    def _silent(self, said: str) -> RedfishError:
        return RedfishError(f"the BMC {self._place} does not answer: {said}")

    def _error(self, reason: QuarantineReason, said: str) -> RedfishError:
        advice = _ADVICE.get(reason, _DISTRUST)
        return RedfishError(f"the BMC {self._place} {said}; {advice}", reason)


_DISTRUST = (
    "trust no firmware of this machine until you have read the inventory by hand and reset the BMC or"
    " reinstalled its firmware; then recheck"
)
_ADVICE = {
    QuarantineReason.INVENTORY_SLOW: (
        "if it is busy, recheck when it is not, or raise leases.verifying-seconds; else reset the BMC"
    ),
    QuarantineReason.INVENTORY_TRUNCATED: "check the network to it, reset the BMC; then recheck",
    QuarantineReason.INVENTORY_REDIRECTED: "if it has moved, state its new address as bmc.url; then recheck",
}


def _path(url: str) -> str:
    parts = urlsplit(url)
    return shown(f"{parts.path}?{parts.query}" if parts.query else parts.path)


def _look_at(task: asyncio.Task[dict[str, Any]]) -> None:
    """Nobody may be waiting any more: an error is then nobody's, and not worth a warning."""
    if not task.cancelled():
        task.exception()


def _trust(certificate: str | None) -> ssl.SSLContext:
    """The pinned certificate alone, whatever name it bears; without one the system's authorities."""
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cadata=certificate)
    # BMCs sign for names that nobody uses; the certificate is pinned.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
