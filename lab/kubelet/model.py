"""What the stand-in of the kubelets is asked for, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.control_plane import NodeSpec


class KubeletError(RuntimeError):
    """The stand-in cannot be started or stopped; one sentence for the user."""


@dataclass(frozen=True, slots=True)
class KubeletSpec:
    """One stand-in.

    `control_plane` is the folder of the lab whose API server it serves. Containers of `image`, whatever
    the tag, run as processes. `boot_seconds` is what each of the two steps of a simulated pod with
    devices takes: until its sandbox runs, and from there until its container does.
    """

    control_plane: Path
    nodes: tuple[NodeSpec, ...]
    image: str
    boot_seconds: float = 0.3
    hosts: Path | None = None
    """Folder of the simulated hosts whose nodes these are; None if there are none."""
    joins: tuple[str, ...] = ()
    """Nodes that are there only while their host has joined a cluster (RKE2), and not from the start."""
    beside: tuple[str, ...] = ()
    """Nodes that have a real kubelet: only what stands outside of their containers is played."""
    real: Path | None = None
    """Folder of the real nodes; None if there are none."""

    @property
    def played(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.name not in self.beside)


@dataclass(frozen=True, slots=True)
class KubeletStatus:
    """The process of one folder: running or not, which nodes it plays, and where their folders are."""

    running: bool
    pid: int | None
    nodes: Mapping[str, Path]
    port: int
    """Where it answers the API server, on loopback; 0 when it does not run."""
    log: Path
    detail: str
