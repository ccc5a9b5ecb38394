"""The network of the pods: what a cluster has for it, what a node is told, when it works."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.files import write_atomic
from lab.nodes import configuration, dns, objects, proxy
from lab.nodes.doors import Doors
from lab.nodes.folder import RealNodeFolder
from lab.nodes.links import Switch
from lab.nodes.network import NetworkPlan
from lab.tools import Report

Node = dict[str, Any]


class PodNetwork(Protocol):
    """What a network of pods does while nodes are made and join."""

    @property
    def replaces(self) -> Collection[str]:
        """Programs of a node that it does without."""

    def programs(self, report: Report) -> Mapping[str, Path]:
        """What it needs beside the programs of every node; got now, which may take time."""

    async def open(self, switch: Switch, doors: Doors, plan: NetworkPlan) -> None:
        """What it has beside the nodes, before there is any."""

    def write(self, layout: Layout, folder: RealNodeFolder, address: str, port: int) -> None:
        """What a node has for it on its disk; `port` is the API server's on the node's loopback."""

    def mounts(self, cgroup: str) -> Mapping[str, tuple[str, ...]]:
        """What is mounted in a node whose group has this name: arguments of `mount`, by place."""

    def declare(self, api: KubeApi) -> None:
        """Have the cluster have what it needs."""

    def configure(self, folder: RealNodeFolder, pods: str, /) -> bool:
        """Tell a node the range of its pods; whether that is news to it."""

    def works(self, node: Node) -> bool:
        """Whether pods of a node that is Ready have their network."""

    def lead(self, api: KubeApi, addresses: Mapping[str, str], /) -> None:
        """Have names come from these nodes, addresses by name."""

    def log(self, folder: RealNodeFolder, /) -> Path | None:
        """Where the network of a node says why it does not work."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge on every node, names from a program of every node; policies are not enforced."""

    token: str
    replaces: tuple[str, ...] = ()

    def programs(self, _report: Report) -> Mapping[str, Path]:
        """None."""
        return {}

    async def open(self, _switch: Switch, _doors: Doors, _plan: NetworkPlan) -> None:
        """Nothing."""

    def write(self, layout: Layout, folder: RealNodeFolder, address: str, port: int) -> None:
        """Files of its program of names."""
        dns.write(layout, folder, address, port)

    def mounts(self, _cgroup: str) -> Mapping[str, tuple[str, ...]]:
        """None."""
        return {}

    def declare(self, api: KubeApi) -> None:
        """The Services `kubernetes` and `kube-dns`."""
        proxy.declare(api)
        dns.declare(api)

    def configure(self, folder: RealNodeFolder, pods: str, /) -> bool:
        file = folder.networks / "10-lab.conflist"
        # A machine that was made anew has lost it.
        told, wanted = file.exists() and file.read_text(), configuration.network(pods)
        if told == wanted:
            return False
        write_atomic(file, wanted.encode())
        return True

    def works(self, node: Node) -> bool:
        return objects.is_usable(node)

    def lead(self, api: KubeApi, addresses: Mapping[str, str], /) -> None:
        """Lead the Service of names to the programs of these nodes."""
        dns.lead(api, self.token, addresses)

    def log(self, _folder: RealNodeFolder, /) -> Path | None:
        """It has none."""
        return None


def network(token: str, _folder: Path) -> PodNetwork:
    """That of nodes which ask for no other."""
    return Bridge(token)


def of(module: str, token: str, folder: Path) -> PodNetwork:
    """The network that a module makes; `folder` is that of the nodes."""
    made: PodNetwork = import_module(module).network(token, folder)
    return made
