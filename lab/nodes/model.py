"""What real nodes are asked for, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lab.control_plane import NodeSpec, Taint
from lab.nodes import cilium, dns, proxy

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
    *proxy.TOOLS, *dns.TOOLS,
)  # fmt: skip
"""Every node."""


def tools_for(network: str) -> tuple[str, ...]:
    """The programs of nodes whose pods have this network."""
    return (*TOOLS, *cilium.TOOLS) if network == CILIUM else TOOLS


Devices = Mapping[str, tuple[int, int]]
"""Character devices by path in a node, such as /dev/vfio/10: major and minor number."""


BRIDGE = "bridge"
"""Pods of a node are linked by a bridge; policies are not enforced."""
CILIUM = "cilium"
"""Pods are linked by Cilium, which enforces policies."""
NETWORKS = (BRIDGE, CILIUM)


class NodesError(RuntimeError):
    """Real nodes cannot be started or stopped; one sentence for the user."""


OWN_CAPACITY: Mapping[str, str] = MappingProxyType({})
"""Capacity and allocatable of a `NodeSpec` whose node says what the machine has."""


@dataclass(frozen=True, slots=True)
class NodesSpec:
    """The real nodes of one lab.

    `control_plane` is the folder of the lab whose API server they join. `images` are OCI archives that every
    node has from the start. `devices` are made in the nodes' own /dev, by name of the node. `ports` of the
    machine's loopback are reached from nodes and pods at `lab.nodes.network.MACHINE`. `hosts` is the folder
    of the simulated hosts of the same names, `joins` those whose kubelet runs only while their host has
    joined a cluster. `aliases` are other names of images, each with the name that an archive gives it.
    `network` is that of the pods, one of `NETWORKS`.
    """

    control_plane: Path
    nodes: tuple[NodeSpec, ...]
    images: tuple[Path, ...]
    devices: Mapping[str, Devices] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    hosts: Path | None = None
    joins: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    network: str = BRIDGE

    def document(self) -> dict[str, Any]:
        return {
            "control-plane": str(self.control_plane),
            "nodes": [
                {
                    "name": node.name,
                    "labels": dict(node.labels),
                    "capacity": dict(node.capacity),
                    "allocatable": dict(node.allocatable),
                    "taints": [asdict(taint) for taint in node.taints],
                }
                for node in self.nodes
            ],
            # An archive is known by what is in it: its folder names it after its digest.
            "images": [str(image) for image in self.images],
            "devices": {
                node: {path: list(numbers) for path, numbers in sorted(devices.items())}
                for node, devices in sorted(self.devices.items())
            },
            "ports": sorted(self.ports),
            "hosts": str(self.hosts) if self.hosts else None,
            "joins": sorted(self.joins),
            "aliases": dict(sorted(self.aliases.items())),
            "network": self.network,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> NodesSpec:
        """From what `document` gave."""
        nodes = tuple(
            NodeSpec(
                node["name"],
                node["labels"],
                capacity=node["capacity"],
                allocatable=node["allocatable"],
                taints=tuple(Taint(**taint) for taint in node["taints"]),
            )
            for node in document["nodes"]
        )
        devices = {
            node: {path: (numbers[0], numbers[1]) for path, numbers in given.items()}
            for node, given in document["devices"].items()
        }
        return cls(
            Path(document["control-plane"]),
            nodes,
            tuple(Path(image) for image in document["images"]),
            devices,
            tuple(document["ports"]),
            Path(document["hosts"]) if document["hosts"] else None,
            frozenset(document["joins"]),
            document["aliases"],
            document.get("network", BRIDGE),
        )


@dataclass(frozen=True, slots=True)
class ProgramState:
    """A program of a node. `pid` is its process in the node, None when there is none.

    `wanted` says whether it is to run. One that is wanted and ended by itself is started again in a moment;
    `words` are then what it said at its end, also while it is tried again.
    """

    pid: int | None
    wanted: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class RunningNode:
    """One real node: its address, its first process as the machine sees it, and its folder."""

    name: str
    address: str
    pid: int
    folder: Path


@dataclass(frozen=True, slots=True)
class NodesStatus:
    """The nodes of one folder, running or not.

    `nodes` are those of the cluster, `machines` all that are switched on: also those whose host has not
    joined.
    """

    running: bool
    pid: int | None
    nodes: Mapping[str, RunningNode]
    machines: Mapping[str, RunningNode]
    subnet: str
    log: Path
    detail: str
