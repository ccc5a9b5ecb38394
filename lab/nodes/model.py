"""What real nodes are asked for, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.control_plane import NodeSpec, Taint

Devices = Mapping[str, tuple[int, int]]
"""Character devices by path in a node, such as /dev/vfio/10: major and minor number."""


class NodesError(RuntimeError):
    """Real nodes cannot be started or stopped; one sentence for the user."""


@dataclass(frozen=True, slots=True)
class NodesSpec:
    """The real nodes of one lab.

    `control_plane` is the folder of the lab whose API server they join. `images` are OCI archives that every
    node has from the start. `devices` are made in the nodes' own /dev, by name of the node. `ports` of the
    machine's loopback are reached from nodes and pods at `lab.nodes.network.MACHINE`. Of a `NodeSpec`, name,
    labels and taints count: capacity is what the machine has.
    """

    control_plane: Path
    nodes: tuple[NodeSpec, ...]
    images: tuple[Path, ...]
    devices: Mapping[str, Devices] = field(default_factory=dict)
    ports: tuple[int, ...] = ()

    def document(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "control-plane": str(self.control_plane),
            "nodes": [
                {
                    "name": node.name,
                    "labels": dict(node.labels),
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
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> NodesSpec:
        """From what `document` gave."""
        nodes = tuple(
            NodeSpec(node["name"], node["labels"], taints=tuple(Taint(**t) for t in node["taints"]))
            for node in document["nodes"]
        )
        devices = {
            node: {path: (numbers[0], numbers[1]) for path, numbers in given.items()}
            for node, given in document["devices"].items()
        }
        images = tuple(Path(image) for image in document["images"])
        ports = tuple(document["ports"])
        return cls(Path(document["control-plane"]), nodes, images, devices, ports)


@dataclass(frozen=True, slots=True)
class RunningNode:
    """One real node: its address, its first process as the machine sees it, and its folder."""

    name: str
    address: str
    pid: int
    folder: Path


@dataclass(frozen=True, slots=True)
class NodesStatus:
    """The nodes of one folder, running or not."""

    running: bool
    pid: int | None
    nodes: Mapping[str, RunningNode]
    subnet: str
    log: Path
    detail: str
