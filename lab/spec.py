"""What a lab is asked to have, and how that is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lab import written
from lab.control_plane import NodeSpec
from lab.files import read_json, write_json
from lab.hosts import HostSpec
from lab.nodes.choice import Kind

FILE = "spec.json"


@dataclass(frozen=True, slots=True)
class LabSpec:
    """What a lab has: a name, and one simulated machine with one node each."""

    name: str
    hosts: tuple[HostSpec, ...]
    nodes: tuple[NodeSpec, ...]
    image: str
    """Pods of this image run as processes of this machine, from this checkout."""
    joins: frozenset[str] = frozenset()
    """Machines that become nodes by joining a cluster, and are none from the start."""
    gpu_operator: frozenset[str] = frozenset()
    """Nodes of the cluster that has the GPU Operator, which is played for these alone."""
    usernetes: frozenset[str] = frozenset()
    """Nodes within containers of their hosts, on which NVIDIA's device plugin is played."""
    kind: Kind = Kind.SIMULATED
    """What nodes are that can be either."""
    real: frozenset[str] = frozenset()
    """Nodes with a kubelet and a containerd of their own; the others are played."""
    proofs: frozenset[str] = frozenset()
    """Images of proofs that are Python programs: real nodes run them with this machine's interpreter."""

    def beside(self, more: LabSpec) -> LabSpec:
        """With the machines of another one; of machines of one name this one's counts."""
        new = {host.name for host in more.hosts} - {host.name for host in self.hosts}
        return replace(
            self,
            hosts=(*self.hosts, *(host for host in more.hosts if host.name in new)),
            nodes=(*self.nodes, *(node for node in more.nodes if node.name in new)),
            image=self.image or more.image,
            joins=self.joins | (more.joins & new),
            gpu_operator=self.gpu_operator | (more.gpu_operator & new),
            usernetes=self.usernetes | (more.usernetes & new),
            real=self.real | (more.real & new),
            proofs=self.proofs | more.proofs,
        )

    @property
    def played(self) -> tuple[NodeSpec, ...]:
        """The nodes that are not real."""
        return tuple(node for node in self.nodes if node.name not in self.real)

    @property
    def machines(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.name in self.real)


def known(folder: Path) -> LabSpec | None:
    """What the lab in a folder has; None if there is none, or one of another version."""
    try:
        found = read_json(folder / FILE)
        return None if found is None else written.read(LabSpec, found)
    except ValueError:
        return None


def with_known(folder: Path, spec: LabSpec) -> LabSpec:
    """With the machines that the lab in a folder has already.

    A machine that the configuration no longer names stays until the lab goes: what was declared on it has
    yet to be taken off it.
    """
    there = known(folder)
    return spec if there is None else spec.beside(there)


def remember(folder: Path, spec: LabSpec) -> None:
    """Write it down, whole or not at all."""
    write_json(folder / FILE, written.document(spec))
