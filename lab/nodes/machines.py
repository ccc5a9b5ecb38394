"""The machines of a lab: which are on, which of them are nodes, what is told of them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.cluster import ClusterError
from lab.control_plane import NodeSpec
from lab.control_plane.kube import UnavailableError
from lab.hosts.rke2 import rke2_cluster
from lab.nodes import node_files
from lab.nodes.announcements import Announcements
from lab.nodes.distribution import UPSTREAM, Distribution
from lab.nodes.held_node import HeldNode
from lab.nodes.joining import Joining
from lab.nodes.links import Switch
from lab.nodes.model import NodesError, NodesSpec
from lab.nodes.rke2 import RKE2

_OFF = "off"
"""In a node's folder: it was switched off, and stays so until somebody switches it on."""
MACHINE = "machine"
CABLE = "cable"
_ACTIONS = {
    MACHINE: ("start", "stop", "restart", "state", "forget"),
    "": ("start", "stop", "restart", "state"),
}
_log = logging.getLogger(__name__)


class Machines:
    """All nodes of one folder.

    `playing` are those that the cluster has, each with what it registers as: from the start, or since its
    host has joined. Their programs run while their machine is on.
    """

    def __init__(
        self,
        switch: Switch,
        joining: Joining,
        announcements: Announcements,
        told: Callable[[], None],
    ) -> None:
        self.held: dict[str, HeldNode] = {}
        self._switch = switch
        self._joining = joining
        self._announcements = announcements
        self._told = told
        self._spec: NodesSpec | None = None
        self._playing: dict[str, NodeSpec] = {}
        self._changing: dict[str, asyncio.Lock] = {}
        self._following: set[asyncio.Task[None]] = set()

    @property
    def playing(self) -> frozenset[str]:
        """Names of the nodes that the cluster has."""
        return frozenset(self._playing)

    @property
    def up(self) -> dict[str, HeldNode]:
        return {name: node for name, node in self.held.items() if node.is_on}

    def wish(self, spec: NodesSpec) -> None:
        """What the machines are to have from now on: images, names of images, doors."""
        self._spec = spec
        for node in self.held.values():
            node.images, node.aliases = spec.images, spec.aliases

    async def add(self, node: HeldNode) -> None:
        """A machine more, switched on unless it was left off; a node of the cluster unless it has to join."""
        spec = self._wanted()
        node.images, node.aliases = spec.images, spec.aliases
        self.held[node.name] = node
        self._changing[node.name] = asyncio.Lock()
        self._switch.answer_at(node.place.bmc)
        if not self._joins(node.name):
            self._playing[node.name] = node.spec
        if not self._off(node).exists():
            await self._switch_on(node)

    async def remove(self, name: str) -> None:
        node = self.held[name]
        async with self._changing[name]:
            self._playing.pop(name, None)
            await self._switch_off(node)
            self._switch.answer_no_more_at(node.place.bmc)
            del self.held[name], self._changing[name]

    async def adjust(self) -> None:
        """Give what runs the images, names and doors that it has not."""
        spec = self._wanted()
        for name, node in self.up.items():
            async with self._changing[name]:
                await node.open(spec.ports)
                if name in self._playing:
                    await node.load()

    async def relabel(self, spec: NodeSpec) -> None:
        self.held[spec.name].spec = spec
        if spec.name in self._playing:
            told = self._playing[spec.name]
            labels = {**told.labels, **spec.labels} if self._joins(spec.name) else spec.labels
            self._playing[spec.name] = replace(told, labels=labels)
            await asyncio.to_thread(self._joining.relabel, self._playing[spec.name])

    async def revive(self) -> None:
        """Switch on again what is gone without having been switched off."""
        for node in self.held.values():
            if not node.is_on and not self._off(node).exists():
                await self.machine(node.name, "restart")

    async def until_ready(self) -> None:
        """Wait until every node of the cluster whose machine is on can be used."""
        waiting = {
            name: (self.held[name], s) for name, s in self._playing.items() if name in self.up
        }
        await asyncio.to_thread(self._joining.until_ready, waiting)
        await asyncio.to_thread(self._joining.connect, [*self.up.values()], self._switch.pid)
        # Before it is told: whoever reads that they run asks their hosts next, and where those answer.
        await self._announcements.heard()
        self._told()

    async def machine(self, name: str, action: str) -> int | None:
        """Switch a machine on or off, or ask for its first process; all in it ends with it."""
        node = self.held[name]
        async with self._changing[name]:
            if action in ("stop", "restart"):
                if action == "stop":
                    self._off(node).touch()
                await self._switch_off(node)
            if action in ("start", "restart") and not node.is_on:
                self._off(node).unlink(missing_ok=True)
                await self._switch_on(node)
                self._follow()
            if action == "forget":
                if node.is_on:
                    raise NodesError(f"node {name} is on; switch it off to change its disk")
                await asyncio.to_thread(node_files.forget_disk, node.place.folder)
            self._told()
        return node.pid if node.is_on else None

    async def cable(self, name: str, action: str) -> int | None:
        """Pull a node's cable out or put it in, or ask; gives its first process while the cable is in."""
        node = self.held[name]
        if not node.is_on:
            raise NodesError(f"node {name} is switched off")
        if action in ("stop", "restart"):
            self._switch.cable(node.place.number, plugged=False)
            await node.cut_off(cut=True)
        if action in ("start", "restart"):
            self._switch.cable(node.place.number, plugged=True)
            await node.cut_off(cut=False)
        return node.pid if self._switch.plugged().get(node.place.number) else None

    async def control(self, name: str, program: str, action: str) -> dict[str, Any]:
        """Do something with a program of a node, its machine or its cable; see `lab.nodes.control`."""
        node = self.held.get(name)
        if node is None:
            raise NodesError(f"there is no node {name!r}")
        if action not in _ACTIONS.get(program, _ACTIONS[""]):
            raise NodesError(f"{program} of a node cannot {action!r}")
        if program == MACHINE:
            return {"pid": await self.machine(name, action)}
        if program == CABLE:
            return {"pid": await self.cable(name, action)}
        # Whoever asks while its programs come or go is answered when they have: that one has left the cluster
        # does not mean yet that its kubelet has ended.
        async with self._changing[name]:
            if not node.is_on:
                raise NodesError(f"node {name} is switched off")
            if name not in self._playing:
                raise NodesError(
                    f"node {name}: its host has not joined a cluster, no {program} runs there"
                )
            return await node.program(program, action)

    async def end(self) -> None:
        """End all of them; they are announced no more."""
        for node in self.held.values():
            node.kill()
            self._announcements.switched_off(node.name)
        await self._announcements.heard()

    async def begin(self, spec: NodeSpec) -> None:
        """The host of a node has joined: it is one of the cluster from now on. Returns when it is Ready."""
        await _whole(self._begin(spec))

    async def _begin(self, spec: NodeSpec) -> None:
        node = self.held[spec.name]
        self._playing[spec.name] = spec
        if not node.is_on:
            return
        try:
            async with self._changing[spec.name]:
                await node.begin(spec, self._distribution(spec.name))
            await self.until_ready()
        except (NodesError, UnavailableError, OSError) as error:
            # Whoever follows the hosts tries again.
            self._playing.pop(spec.name, None)
            raise ClusterError(str(error)) from error

    async def cease(self, name: str) -> None:
        """The node's programs run no more on its host; containers stay, as on a real one."""
        await _whole(self._cease(name))

    async def _cease(self, name: str) -> None:
        self._playing.pop(name, None)
        node = self.held.get(name)
        if node is not None and node.is_on:
            async with self._changing[name]:
                await self._quietly(node.cease(containers=False))
        self._told()

    async def clear(self, name: str) -> None:
        """The host left its cluster, or what it had of it is gone: no pod and no container stays."""
        await _whole(self._clear(name))

    async def _clear(self, name: str) -> None:
        node = self.held.get(name)
        if node is not None and node.is_on:
            async with self._changing[name]:
                await self._quietly(node.cease(containers=True))
        try:
            await asyncio.to_thread(self._joining.clear, name)
        except UnavailableError as error:
            raise ClusterError(str(error)) from error

    def bury(self) -> None:
        """Notice machines that ended by themselves."""
        for node in self.held.values():
            if node.pid and not node.is_on:
                _log.error("node %s is gone; the next start brings it back", node.name)
                node.pid = 0
                self._announcements.switched_off(node.name)
                self._told()

    async def _switch_on(self, node: HeldNode) -> None:
        await node.switch_on(self._switch)
        await node.open(self._wanted().ports)
        self._announcements.switched_on(node.place, node.pid, self._switch.pid)
        if node.name in self._playing:
            await node.begin(self._playing[node.name], self._distribution(node.name))

    async def _switch_off(self, node: HeldNode) -> None:
        self._announcements.switched_off(node.name)
        await node.switch_off(self._switch)

    def _follow(self) -> None:
        """A node that is back finds its way into the cluster while whoever switched it on goes on."""
        task = asyncio.get_running_loop().create_task(self._quietly(self.until_ready()))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except (NodesError, UnavailableError) as error:
            _log.warning("%s", error)

    def _joins(self, name: str) -> bool:
        return name in self._wanted().joins

    def _distribution(self, name: str) -> Distribution:
        spec = self._wanted()
        if spec.hosts is None or not self._joins(name):
            return UPSTREAM
        return RKE2 if rke2_cluster.Clusters(spec.hosts).of_host(name) else UPSTREAM

    def _wanted(self) -> NodesSpec:
        if self._spec is None:
            raise RuntimeError("machines are added after it was said what they are to have")
        return self._spec

    @staticmethod
    def _off(node: HeldNode) -> Path:
        return node.place.folder.path / _OFF


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it; it is done to its end also when whoever waits is cancelled.

    With each new wish another follows the hosts: a node half begun would be neither one nor none to it.
    """
    await asyncio.shield(asyncio.ensure_future(work))
