"""What the stand-in is told, what it tells, and what can go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class OperatorError(Exception):
    """The stand-in cannot be started or stopped; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    control_plane: Path
    """Folder of the lab whose API server it uses."""
    hosts: Path
    """Folder of the simulated hosts; the node of a host has its name."""
    kubelets: Path
    """Folder of the lab's kubelets, to which device plugins register."""
    step_seconds: float = 0.3
    """What each step of an operand takes."""
    nodes: frozenset[str] | None = None
    """The nodes of its cluster; None for those of all hosts. A lab has machines of other clusters too."""

    def document(self) -> dict[str, Any]:
        return {
            "control-plane": str(self.control_plane),
            "hosts": str(self.hosts),
            "kubelets": str(self.kubelets),
            "step-seconds": self.step_seconds,
            "nodes": None if self.nodes is None else sorted(self.nodes),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> OperatorSpec:
        """From what `document` gave."""
        return cls(
            Path(document["control-plane"]),
            Path(document["hosts"]),
            Path(document["kubelets"]),
            document["step-seconds"],
            None if document["nodes"] is None else frozenset(document["nodes"]),
        )
