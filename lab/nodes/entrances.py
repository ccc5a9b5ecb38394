"""Ports of this machine's loopback that lead to Services of the cluster.

The machine has no route to a Service, and needs none: a node dials for it, where kube-proxy chooses the pod.
The port is kept over restarts, because others write it down.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.control_plane import ControlPlaneError, ports
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.nodes import relay
from lab.nodes.folder import DIAL, NodesFolder
from lab.nodes.model import NodesError
from lab.nodes.requests import REQUEST, Answer, ask

_ASK_SECONDS = 120.0
_DIAL_SECONDS = 2.0
"""A node that is cut off answers nothing at all, nor does a pod on it; another is tried then."""
_CONNECT_SECONDS = 60.0
"""While half of the pods are cut off, each try has an even chance: thirty of them fail together never."""


def entrance(folder: Path, namespace: str, service: str, port: int) -> int:
    """The port of this machine's loopback that leads to a port of a Service, for as long as the nodes run.

    Asked again, also after a restart, it is the same. The Service may be made later.

    Raises:
        NodesError: the nodes do not run, or another program has the port that was kept.
    """
    request = {REQUEST: "entrance", "namespace": namespace, "service": service, "port": port}
    return int(ask(NodesFolder(folder.resolve()), request, _ASK_SECONDS)["port"])


class Entrances:
    """All of them, in the process that holds the nodes; sockets of nodes are found from its directory."""

    def __init__(
        self, folder: NodesFolder, layout: Layout, port: int, nodes: Callable[[], Iterable[str]]
    ) -> None:
        """`port` is the API server's, `nodes` the names of those that are on, now."""
        self._file = folder.entrances
        self._layout = layout
        self._port = port
        self._nodes = nodes
        self._servers: dict[str, asyncio.Server] = {}
        self._last = ""
        """The node that dialled last: it is asked first."""

    async def restore(self) -> None:
        """Open those that were open before.

        Raises:
            NodesError: another program has the port of one.
        """
        for name in ports.kept(self._file):
            await self._open(name)

    async def asked(self, request: Mapping[str, Any]) -> Answer:
        """Open one, unless it is open; gives its port."""
        namespace, service, port = (request[word] for word in ("namespace", "service", "port"))
        return {"port": await self._open(f"{namespace}/{service}:{int(port)}")}

    def close(self) -> None:
        """End them; connections through them end with the process."""
        for server in self._servers.values():
            server.close()

    async def _open(self, name: str) -> int:
        port = (await asyncio.to_thread(ports.reserve, self._file, [name]))[name]
        if name not in self._servers:
            carry = relay.to(functools.partial(self._connect, name))
            try:
                self._servers[name] = await asyncio.start_server(carry, ports.LOOPBACK, port)
            except OSError as error:
                raise NodesError(
                    f"port {port} of {ports.LOOPBACK}, which leads to {name}, is held by "
                    f"{ports.holder_of(port)}; end it, or remove {self._file} to let the lab choose others"
                ) from error
        return port

    async def _connect(self, name: str) -> relay.Streams:
        """A connection to the Service, by the first node that makes one.

        As long as any says nothing, all are asked again: with each try, kube-proxy chooses a pod anew.
        """
        where, _, port = name.rpartition(":")
        address = await asyncio.to_thread(self._address, *where.split("/"))
        deadline, silent = time.monotonic() + _CONNECT_SECONDS, True
        while silent and time.monotonic() < deadline:
            silent = False
            for node in sorted(self._nodes(), key=lambda node: (node != self._last, node)):
                try:
                    streams = await asyncio.wait_for(_dialled(node, address, port), _DIAL_SECONDS)
                except TimeoutError:
                    silent = True
                except OSError:
                    continue
                else:
                    self._last = node
                    return streams
        raise OSError(f"no node reaches {name} at {address}")

    def _address(self, namespace: str, service: str) -> str:
        try:
            with KubeApi(self._layout, self._port, _CONNECT_SECONDS) as api:
                found = api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
        except ControlPlaneError as error:
            raise OSError(str(error)) from error
        return str(found["spec"]["clusterIP"])


async def _dialled(node: str, address: str, port: str) -> relay.Streams:
    reader, writer = await asyncio.open_unix_connection(Path(node) / DIAL)
    try:
        writer.write(f"{address} {port}\n".encode())
        await writer.drain()
        if await reader.readline():
            return reader, writer
    except BaseException:
        writer.close()
        raise
    writer.close()
    raise ConnectionRefusedError(f"{node} does not reach {address}:{port}")
