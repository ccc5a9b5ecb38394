"""What the stand-in is told, what it tells, and what can go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UsernetesError(Exception):
    """The stand-in cannot be started or stopped; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class PluginSpec:
    hosts: Path
    """Folder of the simulated hosts; the node of a host has its name."""
    kubelets: Path
    """Folder of the lab's kubelets, which are told."""

    def document(self) -> dict[str, Any]:
        return {"hosts": str(self.hosts), "kubelets": str(self.kubelets)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PluginSpec:
        """From what `document` gave."""
        return cls(Path(document["hosts"]), Path(document["kubelets"]))
