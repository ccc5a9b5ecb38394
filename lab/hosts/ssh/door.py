"""Where connections come in: one socket at a time, which listens or not, and what was let in through it."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from lab.hosts.model import HostsError
from lab.hosts.network import BACKLOG, Accepting, Network
from lab.hosts.ports import Place


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the network that the process `pid` lives in."""

    pid: int
    address: str
    port: int


class Answering(Protocol):
    @property
    def place(self) -> Place:
        """Where it answers, or will when it is allowed to."""

    async def move(self, place: Place) -> None:
        """Answer there from now on; `HostsError` when it cannot listen there."""


class Post:
    """The place of one server, and the network that is held open for it."""

    def __init__(self, server: Answering, port: int | None, lost: Callable[[], None]) -> None:
        """`port` is that on loopback; `lost` is called when the process whose network this is has ended."""
        self._server = server
        self._lost = lost
        self._where: Where | None = None
        self._stands = False
        self.port = port
        self.network: Network | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the process whose network this is has ended."""
        return self.network is not None and self.network.has_ended

    async def go(self, where: Where | None) -> bool:
        """Be there, None: on loopback. Gives whether it moved.

        Raises:
            ProcessLookupError: that process does not live.
            HostsError: it cannot listen there, and listens nowhere now.
        """
        if self._stands and where == self._where and not self.is_lost:
            return False
        network = Network(where.pid) if where is not None else None
        place = Place(port=self.port)
        if where is not None:
            place = Place(where.address, where.port, network)
        try:
            await self._server.move(place)
        except HostsError:
            if network is not None:
                network.close()
            raise
        finally:
            self.leave()
        self.network, self._where, self._stands = network, where, True
        if network is None:
            self.port = self._server.place.port
        else:
            network.when_ended(self._lost)
        return True

    def leave(self) -> None:
        """Let go of the network; what listens there must have been closed."""
        if self.network is not None:
            self.network.close()
        self.network, self._where, self._stands = None, None, False


Serve = Callable[[socket.socket], Coroutine[None, None, None]]


class Door:
    """Accepts connections and serves each in a task of its own."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket: socket.socket | None = None
        self._accepting: Accepting | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self._accepting is not None

    def open(self, listening: socket.socket) -> None:
        """Let in what comes to this socket, which is the door's from now on."""
        self._socket = listening
        self._accepting = Accepting(listening, self._enter)

    def reopen(self) -> bool:
        """Listen again with the socket of before; False when there is none."""
        if self._socket is None:
            return False
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.listen(BACKLOG)
        self.open(self._socket)
        return True

    def shut(self) -> None:
        """Refuse who comes, and keep the port: nobody else may answer there. Who is in stays."""
        if self._accepting is None or self._socket is None:
            return
        self._accepting.stop()
        self._accepting = None
        self._socket.shutdown(socket.SHUT_RD)  # Linux: it stays bound, and can listen again
        # Two that would share a port may both bind to it while none listens, as servers do.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    async def turn_out(self) -> None:
        """Refuse who comes, and end all connections."""
        self.shut()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._connections.clear()

    async def close(self) -> None:
        """End all connections, and give up the socket."""
        await self.turn_out()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _enter(self, connection: socket.socket) -> None:
        task = asyncio.create_task(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
