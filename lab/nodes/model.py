"""What real nodes are asked for, and what they answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from lab.control_plane import NodeSpec
from lab.nodes import dns, proxy

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
    *proxy.TOOLS, *dns.TOOLS,
)  # fmt: skip
"""Every node."""


Devices = Mapping[str, tuple[int, int]]
"""Character devices by path in a node, such as /dev/vfio/10: major and minor number."""


BRIDGE = "lab.nodes.pod_network"
"""Pods of a node are linked by a bridge; policies are not enforced."""


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
    `network` is the module that makes that of the pods (`lab.nodes.pod_network.PodNetwork`).
    """

    control_plane: Path
    nodes: tuple[NodeSpec, ...]
    images: tuple[Path, ...] = ()
    devices: Mapping[str, Devices] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    hosts: Path | None = None
    joins: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    network: str = BRIDGE


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
