"""A management controller that answers over HTTPS whatever a test wants, for one test."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lab.hosts.bmc import ensure_certificate, tls
from lab.hosts.folder import HostsFolder

INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
GOOD, BAD = "96.00.BC.00.01", "96.00.A5.00.66"

Answer = dict[str, Any] | bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


class HostileBmc:
    """Answers each target with what `answers` has for it: a document, bytes, or what a function writes."""

    def __init__(self, url: str, certificate: str) -> None:
        self.url = url
        self.certificate = certificate
        self.answers: dict[str, Answer] = {}
        self.otherwise: Callable[[str], Answer] = lambda _: document({}, 404)
        self.asked: list[str] = []
        """Targets, in the order of the requests."""

    def has(self, versions: dict[str, str | None]) -> None:
        """Items answer for themselves."""
        for item, version in versions.items():
            self.answers[f"{INVENTORY}/{item}"] = {"Id": item, "Version": version}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                target = head.split(" ")[1]
                self.asked.append(target)
                answer = self.answers.get(target) or self.otherwise(target)
                if isinstance(answer, dict):
                    answer = document(answer)
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(writer)
                    break
        writer.transport.abort()


@asynccontextmanager
async def hostile_bmc(folder: Path, name: str = "hgx-01") -> AsyncIterator[HostileBmc]:
    """One that listens on a port of its own until the block ends."""
    host = HostsFolder(folder).host(name)
    host.path.mkdir(parents=True)
    certificate = ensure_certificate(host)
    made = HostileBmc("", certificate)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls(host))
    made.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


def page(items: Sequence[str], *, count: Any = None, **more: Any) -> dict[str, Any]:
    """A page of the inventory; `next` is its link to another."""
    found: dict[str, Any] = {"Members": [{"@odata.id": f"{INVENTORY}/{item}"} for item in items]}
    found["Members@odata.count"] = len(items) if count is None else count
    if "next" in more:
        found["Members@odata.nextLink"] = more["next"]
    return found


def sent(content: bytes, code: int = 200, **headers: str) -> bytes:
    """An answer with this body."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(content)}\r\n{lines}\r\n".encode() + content


def document(body: Any, code: int = 200, **headers: str) -> bytes:
    """An answer with a body in JSON."""
    return sent(json.dumps(body).encode(), code, **headers)


async def broken_off(writer: asyncio.StreamWriter) -> None:
    """Sends less than it announces."""
    writer.write(document(page([]))[:-5])
    await writer.drain()
