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
    ("header", "body", "ends"),
    [
        (_of(5, 0, 0), b"abcde", True),
        (_of(5, 1, 0), b"abcde", True),
        (_of(5, 9, 0), b"a\0b\0c", True),
        (_of(3, 3, 0), b"a\0b", True),
        (_of(2**31, 2, 0), b"", True),
        (_of(400, 2, 0), b"a\0b", True),
        (b"short", b"", True),
        (_of(400, 2, 0), b"a\0b", False),  # nobody waits for the rest
    ],
)
@pytest.mark.parametrize("streams", [3, 2])
def test_streams_of_a_broken_request_are_closed(
    header: bytes, body: bytes, streams: int, *, ends: bool
) -> None:
    async def received() -> object:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            rights = array.array("i", [write] * streams)
            theirs.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            theirs.sendall(body)
            if ends:
                theirs.shutdown(socket.SHUT_WR)
            return await asyncio.wait_for(receive(ours), 60 if ends else 0.2)

    read, write = os.pipe()
    try:
        assert asyncio.run(received()) is None
    except TimeoutError:
        assert not ends
    os.close(write)
    # Who reads sees the end once nobody has the other side.
    reader = threading.Thread(target=os.read, args=(read, 1), daemon=True)
    reader.start()
    reader.join(5)
    assert not reader.is_alive()
    os.close(read)
