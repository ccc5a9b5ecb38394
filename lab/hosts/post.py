"""Where one server of a host stands: on loopback at a port that it keeps, or in the network of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lab.hosts.model import HostsError
from lab.hosts.network import Network
from lab.hosts.ports import Place


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the network that the process `pid` lives in."""

    pid: int
    address: str
    port: int


class Answering(Protocol):
    """What stands there."""

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
