"""How nodes become part of the cluster: registered, given a range for pods, routes to each other, Ready."""

import contextlib
import time
from collections.abc import Iterable, Mapping

from lab.control_plane import NodeSpec
from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.processes import last_words
from lab.nodes import links, objects
from lab.nodes.held_node import HeldNode
from lab.nodes.model import NodesError
from lab.nodes.pod_network import PodNetwork

_SECONDS = 300.0
_POLL_SECONDS = 0.1
_REQUEST_SECONDS = 60.0
"""A machine that starts nodes is busy: its API server may take longer than usual for one answer."""


class Joining:
    """The nodes of one folder on their way into the cluster, and out of it. All of it blocks."""

    def __init__(self, layout: Layout, port: int, token: str, network: PodNetwork) -> None:
        self._layout = layout
        self._port = port
        self._token = token
        self._network = network
        self._ranges: dict[str, str] = {}
        """Range of the pods of each node that has one."""

    def prepare(self, wanted: Iterable[str]) -> None:
        """What the cluster has to have for its nodes; forget those that this lab has no more."""
        with self._api() as api:
            objects.admit_api_server(api)
            self._network.declare(api)
            objects.forget_others(api, self._token, wanted)

    def until_ready(self, joining: Mapping[str, tuple[HeldNode, NodeSpec]]) -> None:
        """Wait until these nodes are usable; each with what it registers as.

        Raises:
            NodesError: one is not in time, with the last words of its kubelet.
        """
        deadline = time.monotonic() + _SECONDS
        waiting = dict(joining)
        with self._api() as api:
            while waiting:
                # The control plane may be at its limits; it is waited for as long as for the nodes.
                with contextlib.suppress(UnavailableError):
                    waiting = {n: w for n, w in waiting.items() if not self._joined(api, *w)}
                if waiting and time.monotonic() > deadline:
                    raise NodesError(self._late(next(iter(waiting.values()))[0]))
                time.sleep(_POLL_SECONDS)

    def connect(self, nodes: Iterable[HeldNode], switch: int) -> None:
        """Lead nodes to the pods of others, and the network of the process `switch` to those of all."""
        held = [node for node in nodes if node.name in self._ranges and node.is_on]
        addresses = {self._ranges[node.name]: node.place.address for node in held}
        for node in held:
            others = {r: a for r, a in addresses.items() if a != node.place.address}
            links.route(node.pid, others)
        links.route(switch, addresses)
        with self._api() as api:
            self._network.lead(api, {node.name: node.place.address for node in held})

    def relabel(self, spec: NodeSpec) -> None:
        """Give a node of the cluster the labels that it is to have now."""
        with self._api() as api:
            objects.label(api, spec, self._token)

    def leave(self, names: Iterable[str]) -> None:
        with self._api() as api:
            for name in names:
                api.delete(f"/api/v1/nodes/{name}")
                self._ranges.pop(name, None)

    def clear(self, name: str) -> None:
        """Delete the pods of a node that is no more, so that others take their place."""
        with self._api() as api:
            objects.delete_pods(api, name)
        self._ranges.pop(name, None)

    def _api(self) -> KubeApi:
        return KubeApi(self._layout, self._port, _REQUEST_SECONDS)

    def _joined(self, api: KubeApi, held: HeldNode, spec: NodeSpec) -> bool:
        node = objects.read(api, held.name)
        if node is None or not node["spec"].get("podCIDR"):
            return False
        pods = str(node["spec"]["podCIDR"])
        anew = self._network.configure(held.place.folder, pods)
        if anew or self._ranges.get(held.name) != pods or not objects.is_labelled(node):
            objects.label(api, spec, self._token)
            self._ranges[held.name] = pods
        return self._network.works(node)

    def _late(self, held: HeldNode) -> str:
        network = self._network.log(held.place.folder)
        if network is None:
            return _late(held)
        return (
            f"the network of node {held.name} did not work within {_SECONDS:.0f} s; its agent says: "
            f"{last_words(network)} (log: {network})"
        )


def _late(held: HeldNode) -> str:
    log = held.place.folder.log("kubelet")
    words = last_words(log)
    # A kubelet and its containerd need ten; the usual limit for all programs of a user is 128.
    hint = "; raise the setting fs.inotify.max_user_instances" if "inotify_init" in words else ""
    return (
        f"node {held.name} was not Ready within {_SECONDS:.0f} s; its kubelet says: "
        f"{words}{hint} (log: {log})"
    )
