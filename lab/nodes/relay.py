"""Carries connections to the API server into the networks of nodes.

The API server listens on the machine's loopback, which a node's network does not have. A socket in the file
system belongs to no network: in the node a connection goes into it, on the machine it comes out.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_CHUNK = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def to(connect: Connect, greeting: bytes = b"") -> Handler:
    """What to do with a connection: carry it on, both ways, until both ends have closed.

    `greeting` is said to whoever connects once the far end has been reached.
    """

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await connect()
        except OSError:
            # Nobody there, as when the control plane is stopped: the client sees its connection break.
            writer.close()
            return
        writer.write(greeting)
        try:
            # Cancelled when the process ends, which is an end of the connection like any other.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    return carry


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
