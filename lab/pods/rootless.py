"""What is inside the node containers of rootless nodes, as `lab.usernetes` tells the kubelets.

Kept in `<kubelets>/rootless.json`, which the processes of pods read too: to them it is what a real container
finds by looking at its devices, its runtime's specification and its network.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "rootless.json"
ALL = "all"


@dataclass(frozen=True, slots=True)
class InNode:
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that a container with all of them sees."""
    names: tuple[str, ...] = ()
    """Names in the node's CDI specification: `all`, `GPU-…`, `0`."""
    default_runtime: str = ""
    """Of containerd: `nvidia`, or `runc`."""
    cdi_mode: bool = False
    """Whether NVIDIA's runtime is in CDI mode."""
    cut_off: bool = False
    """Whether nothing gets from other nodes to its pods."""
    kills_training: bool = False
    """Whether a pod of a training is killed there."""

    @property
    def injects(self) -> bool:
        """Whether containers get the GPUs that their variable names."""
        return self.default_runtime == "nvidia" and self.cdi_mode

    def unresolvable(self, visible: str) -> str | None:
        """What the runtime says about GPUs that it was told of and has no names for; None if all is well."""
        if not visible or not self.injects:
            return None
        missing = [name for name in visible.split(",") if name not in self.names]
        if not missing:
            return None
        devices = ", ".join(f"nvidia.com/gpu={name}" for name in missing)
        return (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: could "
            "not apply required modification to OCI specification: error modifying OCI spec: failed to "
            f"inject CDI devices: unresolvable CDI devices {devices}"
        )


def read(kubelets: Path) -> Mapping[str, InNode]:
    """All rootless nodes by name; none where nobody told of any."""
    try:
        known = json.loads((kubelets / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    return {
        name: InNode(**{**one, "gpus": tuple(one["gpus"]), "names": tuple(one["names"])})
        for name, one in known.items()
    }


def is_told(kubelets: Path, name: str) -> bool:
    """Whether it is known what is inside this node; so it is where nobody tells of any."""
    return not (kubelets / FILE).exists() or name in read(kubelets)


def document(nodes: Mapping[str, InNode]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in nodes.items()}
