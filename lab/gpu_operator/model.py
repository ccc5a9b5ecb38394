"""What the stand-in is told, what it tells, and what can go wrong."""

from dataclasses import dataclass
from pathlib import Path


class OperatorError(Exception):
    """The stand-in cannot be started or stopped; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    control_plane: Path
    """Folder of the lab whose API server it uses."""
    hosts: Path
    """Folder of the simulated hosts; the node of a host has its name."""
    kubelets: Path | None = None
    """Folder of the lab's kubelets, to which device plugins register; None: `kubelet` in that of the lab."""
    step_seconds: float = 0.3
    """What each step of an operand takes."""
    nodes: tuple[str, ...] | None = None
    """The nodes of its cluster; None for those of all hosts. A lab has machines of other clusters too."""
