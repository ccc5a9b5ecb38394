"""What a stand-in's client asks the server of a host: see `client.py` and `client.pl` for the other side."""

import array
import asyncio
import contextlib
import os
import socket
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("!III")
_PEER = struct.Struct("3i")
_MAX_REQUEST = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A stand-in was called: by which name, where, how, by whom, on which streams."""

    name: str
    cwd: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    uid: int
    streams: tuple[int, ...]


async def receive(connection: socket.socket) -> Request | None:
    """Read a request of `client.py`; None when it is not one. Its streams are then closed."""
    connection.settimeout(0)
    await _readable(connection)
    size = array.array("i").itemsize
    header, ancillary, _, _ = connection.recvmsg(_HEADER.size, socket.CMSG_LEN(3 * size))
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    request = None
    try:
        if len(header) == _HEADER.size and len(descriptors) == len(("in", "out", "error")):
            request = await _read(connection, header, tuple(descriptors))
        return request
    finally:
        if request is None:
            for descriptor in descriptors:
                os.close(descriptor)


async def _read(
    connection: socket.socket, header: bytes, streams: tuple[int, ...]
) -> Request | None:
    length, fields, variables = _HEADER.unpack(header)
    if fields < len(("name", "cwd")) or length > _MAX_REQUEST:
        return None
    body = await _exactly(connection, length)
    parts = [part.decode("utf-8", "surrogateescape") for part in body.split(b"\0")]
    if len(parts) < fields:
        return None
    name, cwd, *arguments = parts[:fields]
    pairs = (part.partition("=") for part in parts[fields + 1 :][:variables])
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return Request(
        name=name,
        cwd=cwd,
        arguments=tuple(arguments),
        environment={key: value for key, _, value in pairs},
        uid=_PEER.unpack(peer)[1],
        streams=streams,
    )


async def _exactly(connection: socket.socket, length: int) -> bytes:
    """That many bytes; none when the connection ends before."""
    loop = asyncio.get_running_loop()
    body = b""
    while len(body) < length:
        chunk = await loop.sock_recv(connection, length - len(body))
        if not chunk:
            return b""
        body += chunk
    return body


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)


async def hung_up(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while await loop.sock_recv(connection, 1024):
            pass


def answer_of(exit_code: int, out: bytes, errors: bytes) -> bytes:
    return _HEADER.pack(exit_code, len(out), len(errors)) + out + errors
