"""A real Kubernetes control plane on loopback, with nodes that KWOK keeps alive."""

from __future__ import annotations

from lab.control_plane.lifecycle import remove, start, status, stop
from lab.control_plane.model import (
    HGX_ALLOCATABLE,
    HGX_CAPACITY,
    PLAIN_CAPACITY,
    ControlPlane,
    ControlPlaneError,
    NodeSpec,
    ProcessStatus,
    Taint,
)

__all__ = [
    "HGX_ALLOCATABLE",
    "HGX_CAPACITY",
    "PLAIN_CAPACITY",
    "ControlPlane",
    "ControlPlaneError",
    "NodeSpec",
    "ProcessStatus",
    "Taint",
    "remove",
    "start",
    "status",
    "stop",
]
