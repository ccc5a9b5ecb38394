"""Connections that come to a listening socket, until one stops to accept them.

`loop.sock_accept` is not for that: cancelled in the moment in which somebody connects, it throws the
connection away and complains in the log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


class Accepting:
    """Gives every connection to `welcome`, from within the running loop; begins at once."""

    def __init__(
        self, listening: socket.socket, welcome: Callable[[socket.socket], object]
    ) -> None:
        self._listening = listening
        self._welcome = welcome
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening, self._accept)

    def stop(self) -> None:
        """Accept none from now on; the socket stays open."""
        self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # whoever came has left
        connection.settimeout(0)
        self._welcome(connection)
