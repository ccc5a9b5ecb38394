"""The management controller of one simulated host: an HTTPS port that answers Redfish."""

import asyncio
import contextlib
import secrets
import socket
import ssl
from dataclasses import replace
from http import HTTPStatus
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.hosts import certificates, faults, firmware
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.host import Host
from lab.hosts.identity import create
from lab.hosts.model import ADDRESS
from lab.hosts.ports import Place
from lab.hosts.redfish import Redfish, Reply
from lab.hosts.ssh.door import Door

_DAYS = 3650


def ensure_password(folder: HostsFolder) -> str:
    """The password of the account on every controller of this folder; made when there is none."""
    if not folder.bmc_password.exists():
        create(folder.bmc_password, f"{secrets.token_urlsafe(24)}\n".encode())
    return folder.bmc_password.read_text().strip()


def ensure_certificate(host: HostFolder) -> str:
    """PEM of the host's self-signed certificate; made with its key when there is none."""
    if not host.bmc_certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        # The certificate comes last: where it is, its key is.
        host.bmc_key.unlink(missing_ok=True)
        create(host.bmc_key, pem)
        names = (x509.DNSName(f"{host.name}-bmc"), x509.IPAddress(ip_address(ADDRESS)))
        pem = certificates.self_signed(f"{host.name}-bmc", key, days=_DAYS, names=names)
        create(host.bmc_certificate, pem)
    return host.bmc_certificate.read_text()


def tls(host: HostFolder) -> ssl.SSLContext:
    """How the controller answers: with its own certificate, asking for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(host.bmc_certificate, host.bmc_key)
    return context


_MAX_HEAD = 16 * 1024
_MAX_BODY = 64 * 1024
_IDLE_SECONDS = 60.0
_SILENCE_POLL_SECONDS = 0.05


class Bmc:
    """Accepts connections, reads requests one after the other, answers."""

    def __init__(self, host: Host, password: str) -> None:
        self._host = host
        self.certificate = ensure_certificate(host.folder)
        self._tls = tls(host.folder)
        self._redfish = Redfish(host.platform, password, self._inventory)
        self._door = Door(self._serve)
        self.place = Place()

    async def move(self, place: Place) -> None:
        """Answer there from now on; connections to the place before break.

        Raises:
            HostsError: it cannot listen there.
        """
        await self.close()
        listening = place.listen(f"{self._host.folder.name} (BMC)")
        self.place = replace(place, port=listening.getsockname()[1])
        self._door.open(listening)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        await self._door.close()

    def _inventory(self) -> dict[str, str]:
        return firmware.inventory(self._host.folder, self._host.platform, self._host.faults())

    def _silent(self) -> bool:
        return self._host.faults().first(faults.BmcSilent) is not None

    async def _serve(self, connection: socket.socket) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            await self._spoken_to()
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(limit=_MAX_HEAD, loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            while await self._exchange(reader, writer):
                pass
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            # What a client does wrong, a wrong certificate included, concerns that client alone.
            return
        finally:
            if writer is not None:
                writer.transport.abort()
            connection.close()

    async def _spoken_to(self) -> None:
        while self._silent():
            await asyncio.sleep(_SILENCE_POLL_SECONDS)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection is to end."""
        async with asyncio.timeout(_IDLE_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *lines = head.split("\r\n")
            method, target, version = request.split(" ")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines if line)
            }
            length = int(headers.get("content-length", "0"))
            if length > _MAX_BODY or "transfer-encoding" in headers:
                return False
            await reader.readexactly(length)
        await self._spoken_to()
        reply = self._redfish.answer(method, target, headers.get("authorization"))
        self._host.machine.note("redfish", method=method, path=target, status=reply.status)
        keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        writer.write(_http(reply, keep=keep, body=method != "HEAD"))
        await writer.drain()
        if not keep:
            with contextlib.suppress(OSError):
                writer.close()
                await writer.wait_closed()
        return keep


def _http(reply: Reply, *, keep: bool, body: bool) -> bytes:
    content = reply.content
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": str(len(content)),
        "OData-Version": "4.0",
        "Cache-Control": "no-store",
        "Connection": "keep-alive" if keep else "close",
        **reply.headers,
    }
    head = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{head}{lines}\r\n".encode() + (content if body else b"")
