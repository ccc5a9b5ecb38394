"""A real Kubernetes control plane on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import on_demand

if TYPE_CHECKING:
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
else:
    __getattr__ = on_demand.names(
        __name__,
        {
            "lifecycle": "remove start status stop",
            "model": "HGX_ALLOCATABLE HGX_CAPACITY PLAIN_CAPACITY "
            "ControlPlane ControlPlaneError NodeSpec ProcessStatus Taint",
        },
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
