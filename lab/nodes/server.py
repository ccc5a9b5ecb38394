"""The process that holds the real nodes of a folder: their network, first processes, way to the API.

All that it starts ends with it, killed or not: the nodes' input ends, and the network with the bridge has no
process any more. What is left then are empty cgroups, which the next start or stop removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from lab import tools
from lab.control_plane import ControlPlaneError, NodeSpec
from lab.control_plane.commands import API_SERVER
from lab.control_plane.files import exclusive
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK, kept
from lab.hosts.folder import read_json, write_json
from lab.nodes import cgroups, leftovers, links, registry, relay
from lab.nodes.folder import API, REGISTRY, NodesFolder, port_socket
from lab.nodes.held_node import HeldNode
from lab.nodes.joining import Joining
from lab.nodes.model import NodesError, NodesSpec
from lab.nodes.network import NetworkPlan, plan, token
from lab.tools.cache import cache_root

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
)  # fmt: skip
_LOCK_SECONDS = 30.0
_WATCH_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Nodes:
    """All real nodes of one folder."""

    def __init__(self, folder: NodesFolder, spec: NodesSpec, programs: Mapping[str, Path]) -> None:
        self._folder = folder
        self._spec = spec
        self._programs = programs
        self._layout = Layout.of(spec.control_plane)
        self._port = kept(self._layout.ports).get(API_SERVER, 0)
        if not self._port:
            raise NodesError(f"there is no control plane in {spec.control_plane}; start it first")
        self._token = token(folder.path)
        self._held: dict[str, HeldNode] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Hold the nodes until told to stop; then nothing of them is left."""
        groups = {spec.name: f"gpu-clusters-{self._token}-{spec.name}" for spec in self._spec.nodes}
        # From here sockets have short paths.
        os.chdir(self._folder.path)
        doors = {API: self._port, **{port_socket(port): port for port in self._spec.ports}}
        for name in (*doors, self._folder.control.name):
            Path(name).unlink(missing_ok=True)
        network, switch = self._network(list(groups.values()))
        tasks: list[asyncio.Task[None]] = []
        stack = contextlib.ExitStack()
        try:
            for group in groups.values():
                cgroups.make(group)
            for name, port in doors.items():
                far = functools.partial(asyncio.open_connection, LOOPBACK, port)
                await asyncio.start_unix_server(relay.to(far), name, backlog=512)
            stack.enter_context(registry.serving(REGISTRY, self._spec.images))
            for number, spec in enumerate(self._spec.nodes):
                node = self._node(spec, network.node(number), groups[spec.name])
                self._held[spec.name] = node
            await asyncio.gather(*(node.start(switch) for node in self._held.values()))
            joining = Joining(self._layout, self._port, self._token, self._held)
            await asyncio.to_thread(joining.until_ready)
            await asyncio.start_unix_server(self._asked, self._folder.control.name)
            self._tell(network)
            tasks.append(asyncio.create_task(self._watch(stop)))
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            stack.close()
            self._folder.ready.unlink(missing_ok=True)
            for node in self._held.values():
                node.kill()
            switch.close()
            await asyncio.to_thread(self._undo, list(groups.values()))

    def _undo(self, groups: list[str]) -> None:
        leftovers.end_processes(self._folder.path)
        # Not from the note alone: the folder may have been removed.
        leftovers.remove_groups(groups)
        leftovers.remove(self._folder)

    def _network(self, groups: list[str]) -> tuple[NetworkPlan, links.Switch]:
        """Choose and open the network; one lab of a user after the other, so that two never choose one."""
        lock = cache_root() / "nodes.lock"
        busy = (
            f"another lab has been choosing its network for {_LOCK_SECONDS:.0f} s, holding {lock}"
        )
        with exclusive(lock, wait_seconds=_LOCK_SECONDS, busy=busy):
            network = plan(self._folder.path, links.taken())
            leftovers.note(self._folder, network.interface, groups)
            switch = links.Switch(network)
            try:
                switch.open()
            except BaseException:
                switch.close()
                raise
        return network, switch

    def _node(self, spec: NodeSpec, address: str, group: str) -> HeldNode:
        return HeldNode(
            spec=spec,
            folder=self._folder.node(spec.name),
            address=address,
            cgroup=group,
            programs=self._programs,
            layout=self._layout,
            port=self._port,
            images=self._spec.images,
            devices=self._spec.devices.get(spec.name, {}),
            ports=self._spec.ports,
            log=self._folder.log,
        )

    def _tell(self, network: NetworkPlan) -> None:
        nodes = {
            name: {"address": node.address, "pid": node.pid} for name, node in self._held.items()
        }
        write_json(self._folder.ready, {"nodes": nodes, "subnet": str(network.subnet)})

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for a program of a node, one answer."""
        with contextlib.suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            node = self._held.get(request["node"])
            answer: dict[str, Any] = {"error": f"there is no node {request['node']!r}"}
            if node is not None:
                answer = await node.ask(request["program"], request["action"])
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _watch(self, stop: asyncio.Event) -> None:
        """End when the folder was removed or a node is gone: both are then seen and put right by a start."""
        while self._folder.process.exists():
            for node in self._held.values():
                if not node.is_alive:
                    _log.error("node %s is gone: ending with all others", node.name)
                    stop.set()
            await asyncio.sleep(_WATCH_SECONDS)
        stop.set()


def serve(path: Path) -> None:
    """Hold the nodes in this process until SIGTERM or SIGINT.

    Raises:
        NodesError: another process holds the nodes of this folder, or they cannot be started.
    """
    folder = NodesFolder(path)
    lock = os.open(folder.serve_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise NodesError(f"another process holds the nodes in {path}") from None
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    process = psutil.Process()
    write_json(folder.process, {"pid": process.pid, "created": process.create_time()})
    programs = tools.ensure(TOOLS, _log.info)
    nodes = Nodes(folder, NodesSpec.of(read_json(folder.specs)), programs)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await nodes.run(stop)

    try:
        asyncio.run(main())
    except (ControlPlaneError, LookupError, OSError) as error:
        raise NodesError(f"the real nodes cannot be started: {error}") from error
