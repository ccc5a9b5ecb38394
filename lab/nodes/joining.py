"""How nodes become part of the cluster: registered, given a range for pods, routes to each other, Ready."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from lab.control_plane.files import write_atomic
from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.processes import last_words
from lab.nodes import configuration, links, objects
from lab.nodes.held_node import HeldNode
from lab.nodes.model import NodesError

_SECONDS = 90.0
_POLL_SECONDS = 0.1


class Joining:
    """The nodes of one folder on their way into the cluster."""

    def __init__(
        self, layout: Layout, port: int, token: str, nodes: Mapping[str, HeldNode]
    ) -> None:
        self._layout = layout
        self._port = port
        self._token = token
        self._nodes = nodes
        self._ranges: dict[str, str] = {}
        """Range of the pods of each node that has one."""

    def until_ready(self) -> None:
        """Wait until every node is usable; it blocks.

        Raises:
            NodesError: one is not in time, with the last words of its kubelet.
        """
        deadline = time.monotonic() + _SECONDS
        with KubeApi(self._layout, self._port) as api:
            objects.admit_api_server(api)
            objects.forget_others(api, self._token, self._nodes)
            waiting = dict(self._nodes)
            while waiting:
                # The control plane may be at its limits; it is waited for as long as for the nodes.
                with contextlib.suppress(UnavailableError):
                    waiting = {
                        n: held for n, held in waiting.items() if not self._joined(api, held)
                    }
                if waiting and time.monotonic() > deadline:
                    raise NodesError(_late(next(iter(waiting.values()))))
                time.sleep(_POLL_SECONDS)
        self._connect()

    def _joined(self, api: KubeApi, held: HeldNode) -> bool:
        node = objects.read(api, held.name)
        if node is None or not node["spec"].get("podCIDR"):
            return False
        if held.name not in self._ranges:
            pods = str(node["spec"]["podCIDR"])
            conflist = configuration.network(pods).encode()
            write_atomic(held.folder.networks / "10-lab.conflist", conflist)
            objects.label(api, held.spec, self._token)
            self._ranges[held.name] = pods
        return objects.is_usable(node)

    def _connect(self) -> None:
        addresses = {self._ranges[name]: held.address for name, held in self._nodes.items()}
        for held in self._nodes.values():
            others = {r: address for r, address in addresses.items() if address != held.address}
            links.route(held.pid, others)


def _late(held: HeldNode) -> str:
    log = held.folder.log("kubelet")
    return (
        f"node {held.name} was not Ready within {_SECONDS:.0f} s; its kubelet says: "
        f"{last_words(log)} (log: {log})"
    )
