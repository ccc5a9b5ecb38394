"""What the stand-in of the kubelets is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.control_plane import NodeSpec, Taint


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
    joins: frozenset[str] = frozenset()
    """Nodes that are there only while their host has joined a cluster (RKE2), and not from the start."""
    beside: frozenset[str] = frozenset()
    """Nodes that have a real kubelet: only what stands outside of their containers is played."""
    real: Path | None = None
    """Folder of the real nodes; None if there are none."""

    @property
    def played(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.name not in self.beside)

    def document(self) -> dict[str, Any]:
        return {
            "control-plane": str(self.control_plane),
            "image": self.image,
            "boot-seconds": self.boot_seconds,
            "hosts": str(self.hosts) if self.hosts else None,
            "joins": sorted(self.joins),
            "beside": sorted(self.beside),
            "real": str(self.real) if self.real else None,
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
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> KubeletSpec:
        """From what `document` gave."""
        nodes = tuple(
            NodeSpec(**{**node, "taints": tuple(Taint(**taint) for taint in node["taints"])})
            for node in document["nodes"]
        )
        return cls(
            Path(document["control-plane"]),
            nodes,
            document["image"],
            document["boot-seconds"],
            Path(document["hosts"]) if document["hosts"] else None,
            frozenset(document["joins"]),
            frozenset(document["beside"]),
            Path(document["real"]) if document["real"] else None,
        )


@dataclass(frozen=True, slots=True)
class KubeletStatus:
    """The process of one folder: running or not, which nodes it plays, and where their folders are."""

    running: bool
    pid: int | None
    nodes: Mapping[str, Path]
    port: int
    """Where it answers the API server, on loopback; 0 when it does not run."""
    rss_bytes: int
    log: Path
    detail: str
