"""What the server of a host makes of requests that are none: it keeps nothing open."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
import threading

import pytest

from lab.hosts.request import receive


def _of(*numbers: int) -> bytes:
    return struct.pack("!III", *numbers)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (_of(5, 0, 0), b"abcde"),
        (_of(5, 1, 0), b"abcde"),
        (_of(5, 9, 0), b"a\0b\0c"),
        (_of(3, 3, 0), b"a\0b"),
        (_of(2**31, 2, 0), b""),
        (_of(400, 2, 0), b"a\0b"),
        (b"short", b""),
    ],
)
@pytest.mark.parametrize("streams", [3, 2])
def test_streams_of_a_broken_request_are_closed(header: bytes, body: bytes, streams: int) -> None:
    async def received() -> object:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            _send(theirs, header, body, files[:streams])
            theirs.shutdown(socket.SHUT_WR)
            return await asyncio.wait_for(receive(ours), 60)

    read, write = os.pipe()
    files = [write, write, write]
    assert asyncio.run(received()) is None
    os.close(write)
    # Who reads sees the end once nobody has the other side.
    assert _ends(read)


def test_streams_of_a_request_that_nobody_waits_for_are_closed() -> None:
    async def given_up() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            _send(theirs, _of(400, 2, 0), b"a\0b", [write, write, write])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(ours), 0.2)

    read, write = os.pipe()
    asyncio.run(given_up())
    os.close(write)
    assert _ends(read)


def _send(connection: socket.socket, header: bytes, body: bytes, files: list[int]) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([header], [rights])
    connection.sendall(body)


def _ends(descriptor: int) -> bool:
    reader = threading.Thread(target=os.read, args=(descriptor, 1), daemon=True)
    reader.start()
    reader.join(5)
    ended = not reader.is_alive()
    if ended:
        os.close(descriptor)
    return ended
