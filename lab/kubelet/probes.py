"""Probes of containers that run as processes: `httpGet` and `tcpSocket`, with Kubernetes' counting."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp

_EAGER_SECONDS = 0.2


def _whoever_answers() -> ssl.SSLContext:
    """As a kubelet: a probe asks whether somebody answers, not who."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# Made once: a context costs more than all else of a probe.
_TRUST = _whoever_answers()


class Probe:
    """Asks again and again; `healthy` is None until it has decided for the first time.

    An `eager` one asks more often than its spec says until it is answered well for the first time.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        container: Mapping[str, Any],
        address: str,
        *,
        eager: bool = False,
    ) -> None:
        self._spec = spec
        self._container = container
        self._address = address
        self._eager = eager
        self.healthy: bool | None = None
        self.changed = asyncio.Event()

    async def run(self) -> None:
        await asyncio.sleep(self._spec.get("initialDelaySeconds", 0))
        period = float(self._spec.get("periodSeconds", 10))
        needed = {
            True: self._spec.get("successThreshold", 1),
            False: self._spec.get("failureThreshold", 3),
        }
        last, count = None, 0
        async with aiohttp.ClientSession() as session:
            while True:
                said = await self._ask(session)
                count = count + 1 if said == last else 1
                last = said
                if count >= needed[said] and self.healthy is not said:
                    self.healthy = said
                    self.changed.set()
                self._eager = self._eager and not said
                await asyncio.sleep(min(period, _EAGER_SECONDS) if self._eager else period)

    async def _ask(self, session: aiohttp.ClientSession) -> bool:
        timeout = float(self._spec.get("timeoutSeconds", 1))
        try:
            async with asyncio.timeout(timeout):
                if "tcpSocket" in self._spec:
                    return await self._connects(self._spec["tcpSocket"]["port"])
                return await self._answers(session, self._spec["httpGet"])
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _answers(self, session: aiohttp.ClientSession, get: Mapping[str, Any]) -> bool:
        scheme = get.get("scheme", "HTTP").lower()
        host = get.get("host") or self._address
        url = f"{scheme}://{host}:{self._port(get['port'])}{get.get('path', '/')}"
        headers = {header["name"]: header["value"] for header in get.get("httpHeaders") or ()}
        async with session.get(url, headers=headers, ssl=_TRUST, allow_redirects=False) as answer:
            return 200 <= answer.status < 400

    async def _connects(self, port: int | str) -> bool:
        _, writer = await asyncio.open_connection(self._address, self._port(port))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        for named in self._container.get("ports") or ():
            if named.get("name") == port:
                return int(named["containerPort"])
        return int(port)


def is_supported(spec: Mapping[str, Any]) -> bool:
    """Whether the stand-in can make this probe."""
    return "httpGet" in spec or "tcpSocket" in spec
