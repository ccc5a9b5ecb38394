"""The process that holds the real nodes of a folder: their network, first processes, way to the API.

All that it starts ends with it, killed or not: the nodes' input ends, and the network with the bridge has no
process any more. What is left then are empty cgroups, which the next start or stop removes.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import tools
from lab.cluster import Cluster, ClusterError
from lab.control_plane import ControlPlaneError, NodeSpec
from lab.control_plane.commands import API_SERVER, KUBELET
from lab.control_plane.files import exclusive
from lab.control_plane.layout import Layout
from lab.control_plane.ports import kept
from lab.files import read_json, write_json
from lab.hosts.folder import HostsFolder
from lab.kubelet.membership import Membership
from lab.nodes import leftovers, links, pod_network, registry
from lab.nodes.announcements import Announcements
from lab.nodes.doors import Doors
from lab.nodes.entrances import Entrances
from lab.nodes.folder import REGISTRY, NodesFolder
from lab.nodes.held_node import HeldNode
from lab.nodes.joining import Joining
from lab.nodes.machines import Machines
from lab.nodes.model import TOOLS, NodesError, NodesSpec
from lab.nodes.network import NetworkPlan, plan, token
from lab.nodes.node_files import Place, Surroundings
from lab.nodes.pod_network import PodNetwork
from lab.nodes.process import SERVER
from lab.nodes.requests import Answer, answering
from lab.tools.cache import cache_root
from lab.written import read


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be done to running nodes; one that is made anew is both `removed` and `added`."""

    removed: frozenset[str]
    added: frozenset[str]
    relabelled: frozenset[str]


def numbers(names: Collection[str], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each node: the one that it had, else the lowest that is free."""
    kept = {name: number for name, number in known.items() if name in names}
    free = (number for number in range(len(names)) if number not in kept.values())
    return kept | {name: next(free) for name in names if name not in kept}


def must_restart(running: NodesSpec, wanted: NodesSpec) -> str:
    """What of a wish only another process can do, in words; empty when there is nothing of it."""
    if running.control_plane != wanted.control_plane:
        return "they are to join another control plane"
    if running.hosts != wanted.hosts:
        return "their hosts lie elsewhere"
    if running.network != wanted.network:
        return f"their network is to be {wanted.network}"
    return ""


def changes(running: NodesSpec, wanted: NodesSpec) -> Changes:
    """What changed about nodes. Labels can be changed; with anything else a node is made anew."""
    before = {node.name: node for node in running.nodes}
    after = {node.name: node for node in wanted.nodes}
    both = before.keys() & after.keys()
    anew = {
        name
        for name in both
        if replace(before[name], labels={}) != replace(after[name], labels={})
        or running.devices.get(name, {}) != wanted.devices.get(name, {})
        or (name in running.joins) != (name in wanted.joins)
    }
    return Changes(
        removed=frozenset(before.keys() - after.keys() | anew),
        added=frozenset(after.keys() - before.keys() | anew),
        relabelled=frozenset(
            name for name in both - anew if dict(before[name].labels) != dict(after[name].labels)
        ),
    )


_LOCK_SECONDS = 120.0
_WATCH_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Nodes:
    def __init__(
        self,
        folder: NodesFolder,
        spec: NodesSpec,
        programs: Mapping[str, Path],
        network: PodNetwork,
        stop: asyncio.Event,
    ) -> None:
        self._folder = folder
        self._spec = spec
        layout = Layout.of(spec.control_plane)
        port = kept(layout.ports).get(API_SERVER, 0)
        if not port:
            raise NodesError(f"there is no control plane in {spec.control_plane}; start it first")
        self._around = Surroundings(layout, port, programs, folder.log, spec.hosts, network)
        self._token = token(folder.path)
        self._doors = Doors(port)
        self._reloading = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._stop = stop
        self._complete = False
        """Whether all that was asked for at the start is there."""
        self._entrances = Entrances(folder, layout, port, lambda: self._machines.up)
        self._handlers = {
            "control": self._control,
            "reload": self._reload,
            "entrance": self._entrances.asked,
        }

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    async def run(self) -> None:
        """Hold the nodes until told to stop; then nothing of them is left."""
        # From here sockets have short paths.
        os.chdir(self._folder.path)
        Path(self._folder.control.name).unlink(missing_ok=True)
        self._numbers: dict[str, int] = read_json(self._folder.numbers) or {}
        self._network, self._switch = self._open_network()
        self._joining = Joining(
            self._around.layout, self._around.port, self._token, self._around.network
        )
        self._machines = Machines(
            self._switch,
            self._joining,
            Announcements(self._spec.hosts, self._folder.path),
            self._tell,
        )
        watching: asyncio.Task[None] | None = None
        stack = contextlib.ExitStack()
        try:
            await self._doors.open(self._spec.ports)
            await self._around.network.open(self._switch, self._doors, self._network)
            await self._entrances.restore()
            self._contents = stack.enter_context(registry.serving(REGISTRY, self._spec.images))
            await asyncio.to_thread(self._joining.prepare, [node.name for node in self._spec.nodes])
            self._machines.wish(self._spec)
            async with self._reloading:
                await asyncio.start_unix_server(
                    answering(self._handlers), self._folder.control.name
                )
                await self._add({node.name for node in self._spec.nodes})
                await self._machines.until_ready()
            self._complete = True
            self._tell()
            watching = asyncio.create_task(self._watch())
            self._follow_hosts()
            await self._stop.wait()
        finally:
            for task in filter(None, (watching, self._following)):
                task.cancel()
            stack.close()
            self._entrances.close()
            self._folder.ready.unlink(missing_ok=True)
            await self._machines.end()
            self._switch.close()
            await asyncio.to_thread(self._undo)

    def _undo(self) -> None:
        leftovers.end_processes(self._folder.path)
        # Not from the note alone: the folder may have been removed.
        leftovers.remove_groups([self._group(name) for name in self._numbers])
        leftovers.remove(self._folder)

    def _open_network(self) -> tuple[NetworkPlan, links.Switch]:
        """Choose and open the network; one lab of a user after the other, so that two never choose one."""
        lock = cache_root() / "nodes.lock"
        busy = (
            f"another lab has been choosing its network for {_LOCK_SECONDS:.0f} s, holding {lock}"
        )
        with exclusive(lock, wait_seconds=_LOCK_SECONDS, busy=busy):
            network = plan(self._folder.path, links.taken())
            leftovers.note(self._folder, network.interface, [])
            switch = links.Switch(network)
            try:
                switch.open()
            except BaseException:
                switch.close()
                raise
        return network, switch

    async def _add(self, names: set[str]) -> None:
        """Make these nodes of the wish; they are on their way when it returns."""
        self._numbers = numbers([node.name for node in self._spec.nodes], self._numbers)
        write_json(self._folder.numbers, self._numbers)
        groups = [self._group(name) for name in {*self._numbers, *self._machines.held}]
        leftovers.note(self._folder, self._network.interface, groups)
        nodes = [self._node(name) for name in sorted(names)]
        done = await asyncio.gather(
            *(self._machines.add(node) for node in nodes), return_exceptions=True
        )
        for error in done:
            if isinstance(error, BaseException):
                raise error

    def _node(self, name: str) -> HeldNode:
        spec = next(node for node in self._spec.nodes if node.name == name)
        number, hosts = self._numbers[name], self._spec.hosts
        host = HostsFolder(hosts).host(name) if hosts else None
        place = Place(
            number=number,
            folder=self._folder.node(name),
            address=self._network.node(number),
            bmc=self._network.bmc(number),
            cgroup=self._group(name),
            root=host.root if host and host.path.is_dir() else None,
        )
        return HeldNode(spec, place, self._around, self._spec.devices.get(name, {}))

    def _group(self, name: str) -> str:
        return f"gpu-clusters-{self._token}-{name}"

    def _tell(self) -> None:
        """Write down what runs, for whoever waits until all of it does: nothing before."""
        if not self._complete:
            return
        machines = {
            name: {"address": node.place.address, "pid": node.pid}
            for name, node in self._machines.up.items()
        }
        nodes = sorted(machines.keys() & self._machines.playing)
        ready = {"machines": machines, "nodes": nodes, "subnet": str(self._network.subnet)}
        write_json(self._folder.ready, ready)

    async def _control(self, request: Mapping[str, Any]) -> Answer:
        """One request for a program of a node, its machine or its cable."""
        name, program, action = request["node"], request["program"], request["action"]
        return await self._machines.control(name, program, action)

    async def _reload(self, _: Mapping[str, Any]) -> Answer:
        """Do what the wish in the folder says now; nodes that stay keep running."""
        async with self._reloading:
            wanted = read(NodesSpec, read_json(self._folder.specs))
            if why := must_restart(self._spec, wanted):
                return {"restart": why}
            found = changes(self._spec, wanted)
            new = [image for image in wanted.images if image not in self._spec.images]
            self._spec = wanted
            self._machines.wish(wanted)
            for image in new:
                await asyncio.to_thread(self._contents.add, image)
            await self._doors.open(wanted.ports)
            for name in found.removed & self._machines.held.keys():
                await self._machines.remove(name)
            left = sorted(found.removed - {node.name for node in wanted.nodes})
            await asyncio.to_thread(self._joining.leave, left)
            await self._machines.adjust()
            for spec in wanted.nodes:
                if spec.name in found.relabelled:
                    await self._machines.relabel(spec)
            await self._machines.revive()
            await self._add({node.name for node in wanted.nodes} - self._machines.held.keys())
            await self._machines.until_ready()
            self._follow_hosts()
        return {}

    def _follow_hosts(self) -> None:
        """Have the nodes of hosts that join, and have them no more when they leave."""
        if self._following is not None:
            self._following.cancel()
            self._following = None
        specs = {spec.name: spec for spec in self._spec.nodes if spec.name in self._spec.joins}
        if specs and self._spec.hosts is not None:
            work = self._follow(specs, self._spec.hosts)
            self._following = asyncio.create_task(work)

    async def _follow(self, specs: Mapping[str, NodeSpec], hosts: Path) -> None:
        layout = self._around.layout
        try:
            async with Cluster(layout, KUBELET) as cluster:
                await Membership(self._machines, cluster, specs, hosts, self._tell).follow()
        except Exception:  # noqa: BLE001 (whatever it is, the process must not go on without)
            # Without it no host can join; a process that is gone is at least noticed.
            _log.exception("hosts that join cannot be followed")
            self.stop()

    async def _watch(self) -> None:
        """End when the folder was removed; notice machines that are gone, which a start puts right."""
        while self._folder.process.exists():
            self._machines.bury()
            await asyncio.sleep(_WATCH_SECONDS)
        self.stop()


def serve(path: Path) -> None:
    """Hold the nodes in this process until SIGTERM or SIGINT.

    Raises:
        NodesError: another process holds the nodes of this folder, or they cannot be started.
    """
    folder = NodesFolder(path)
    spec = read(NodesSpec, read_json(folder.specs))

    async def hold(stop: asyncio.Event) -> None:
        network = pod_network.of(spec.network, token(folder.path), folder.path)
        programs = await asyncio.to_thread(tools.ensure, TOOLS, _log.info)
        more = await asyncio.to_thread(network.programs, _log.info)
        await Nodes(folder, spec, {**programs, **more}, network, stop).run()

    try:
        SERVER.run(folder, hold)
    except (ClusterError, ControlPlaneError, LookupError, OSError) as error:
        raise NodesError(f"the real nodes cannot be started: {error}") from error
