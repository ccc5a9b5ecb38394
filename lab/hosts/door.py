"""Where connections come in: one listening socket at a time, and what was let in through it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

Serve = Callable[[socket.socket], Coroutine[None, None, None]]


class Door:
    """Accepts connections and serves each in a task of its own."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether it listens."""
        return self._socket is not None

    def open(self, listening: socket.socket) -> None:
        """Let in what comes to this socket, which is the door's from now on."""
        self._socket = listening
        self._accepting = asyncio.create_task(self._accept(listening))

    async def shut(self) -> None:
        """Stop listening; who is in stays."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        await self.shut()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._connections.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listening)
            task = asyncio.create_task(self._serve(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
