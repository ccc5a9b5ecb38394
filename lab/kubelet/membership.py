"""Nodes that come and go with their hosts: the kubelet of a host runs while RKE2 or its container does."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lab.cluster import NODE, Cluster, ClusterError
from lab.control_plane import NodeSpec
from lab.kubelet.joined import JoinedNode, joined_nodes

_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_TELLER = "gpu-clusters-membership"
_log = logging.getLogger(__name__)


class Players(Protocol):
    @property
    def playing(self) -> frozenset[str]:
        """Names of the nodes that are played."""

    async def begin(self, spec: NodeSpec) -> None:
        """Play this node; returns when it is Ready."""

    async def cease(self, name: str) -> None:
        """Play it no more; its pods end."""

    async def clear(self, name: str) -> None:
        """Delete the pods of a node that is no more, so that others take their place."""


class Membership:
    """Plays exactly those nodes whose hosts have joined and run."""

    def __init__(
        self,
        players: Players,
        cluster: Cluster,
        specs: Mapping[str, NodeSpec],
        hosts: Path,
        told: Callable[[], None],
        is_furnished: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_furnished`: of a rootless node, whether it is known what its container has."""
        self._players = players
        self._cluster = cluster
        self._specs = specs
        self._hosts = hosts
        self._told = told
        self._is_furnished = is_furnished
        # Whether it was removed while nothing looked is found out by removing it.
        self._registered = set(specs)
        self._told_of: dict[str, Mapping[str, Any]] = {}

    async def follow(self) -> None:
        while True:
            try:
                await self._settle()
            except ClusterError as error:
                _log.warning("a node that joined or left: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_POLL_SECONDS)

    async def _settle(self) -> None:
        there = await asyncio.to_thread(joined_nodes, self._hosts)
        running = {name for name, node in there.items() if node.running and name in self._specs}
        playing = self._players.playing & self._specs.keys()
        for name in playing - running:
            _log.info("%s: its kubelet does not run there any more", name)
            await self._players.cease(name)
            self._told_of.pop(name, None)
        for name in self._registered - set(there):
            # What a drain would have done before, and the cluster does by itself after a minute.
            await self._players.clear(name)
            await self._cluster.delete(NODE, name)
            self._registered.discard(name)
        # A pod that starts before would find nothing in its node, and never look again.
        begun = {
            name
            for name in running - playing
            if not there[name].rootless or self._is_furnished(name)
        }
        await asyncio.gather(*(self._begin(name, there[name].of) for name in begun))
        for name in self._players.playing & running:
            await self._tell(name, there[name])
        if self._players.playing & self._specs.keys() != playing:
            self._told()

    async def _begin(self, name: str, joined: Callable[[NodeSpec], NodeSpec]) -> None:
        _log.info("%s: its host has joined", name)
        self._registered.add(name)
        try:
            await self._players.begin(joined(self._specs[name]))
        except ClusterError as error:
            _log.warning("%s: not registered, tried again: %s", name, error)

    async def _tell(self, name: str, joined: JoinedNode) -> None:
        """What the host's own kubectl changed about its node, changed in the lab's API too."""
        told, before = joined.told, self._told_of.get(name, {})
        if told == before:
            return
        node = await self._cluster.get(NODE, name)
        if node is None:
            return
        others = [t for t in node["spec"].get("taints") or () if t["key"] not in told["keys"]]
        gone = dict.fromkeys(before.get("annotations", {}).keys() - told["annotations"].keys())
        await self._cluster.patch(
            NODE,
            name,
            "",
            {
                "metadata": {"annotations": {**told["annotations"], **gone}},
                "spec": {
                    "taints": [*others, *told["taints"]] or None,
                    "unschedulable": told["unschedulable"] or None,
                },
            },
        )
        status = {"addresses": told["addresses"]}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        await self._cluster.apply(NODE, body, manager=_TELLER, subresource="status")
        self._told_of[name] = told
