"""Sockets in the folder of a lab that lead to the machine's loopback: a node has no other way there."""

import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path

from lab.control_plane.ports import LOOPBACK
from lab.hosts.network import Network
from lab.nodes import relay
from lab.nodes.folder import API, port_socket


class Doors:
    """The sockets of one lab, in the current folder."""

    def __init__(self, api: int) -> None:
        """`api` is the port of the API server."""
        self._api = api
        self._open: dict[str, asyncio.Server] = {}
        self._served: asyncio.Server | None = None

    async def open(self, ports: Sequence[int]) -> None:
        """Lead to the API server and to exactly these ports."""
        wanted = {API: self._api, **{port_socket(port): port for port in ports}}
        for name in self._open.keys() - wanted.keys():
            self._open.pop(name).close()
        for name in wanted.keys() - self._open.keys():
            Path(name).unlink(missing_ok=True)
            far = functools.partial(asyncio.open_connection, LOOPBACK, wanted[name])
            self._open[name] = await asyncio.start_unix_server(relay.to(far), name, backlog=512)

    async def serve(self, pid: int, address: str, port: int) -> None:
        """Lead to the API server from there in the network of a process."""
        network = Network(pid)
        try:
            listening = network.listen(address, port)
        finally:
            network.close()
        far = functools.partial(asyncio.open_connection, LOOPBACK, self._api)
        self._served = await asyncio.start_server(relay.to(far), sock=listening, backlog=512)
