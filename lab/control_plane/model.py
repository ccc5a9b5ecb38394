"""What the control plane is asked for, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType


class ControlPlaneError(RuntimeError):
    """The control plane could not be started, stopped or asked; one sentence for the user."""


# Two sockets of 56 cores with two threads, 2 TiB of memory of which half is given to VMs as huge
# pages, eight GPUs passed through. What a kubelet keeps for itself is missing in ALLOCATABLE.
HGX_CAPACITY: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "224",
        "memory": "2048Gi",
        "hugepages-1Gi": "1024Gi",
        "ephemeral-storage": "7000Gi",
        "pods": "110",
        "nvidia.com/pgpu": "8",
    }
)
HGX_ALLOCATABLE: Mapping[str, str] = MappingProxyType(
    {**HGX_CAPACITY, "cpu": "220", "memory": "1008Gi", "ephemeral-storage": "6800Gi"}
)

PLAIN_CAPACITY: Mapping[str, str] = MappingProxyType(
    {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "400Gi", "pods": "110"}
)
"""Of a machine without GPUs, such as a server of a control plane."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of the lab, real or played.

    `capacity` and `allocatable` are quantities as Kubernetes writes them.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=lambda: HGX_CAPACITY)
    allocatable: Mapping[str, str] = field(default_factory=lambda: HGX_ALLOCATABLE)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane.

    `versions` are those that run, by product. `changed` is false when it ran already and nothing
    had to be started.
    """

    kubeconfig: Path
    url: str
    versions: Mapping[str, str]
    changed: bool


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of the control plane, running or not.

    `since` is seconds since the epoch, `rss_bytes` the resident memory; both 0 when it does not
    run, as is `pid`.
    """

    name: str
    port: int
    log: Path
    running: bool = False
    pid: int = 0
    since: float = 0.0
    rss_bytes: int = 0
