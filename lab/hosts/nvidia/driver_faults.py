"""Faults of NVIDIA's driver on a machine that runs it itself."""

from __future__ import annotations

from typing import Literal

from lab.hosts.service_vm.fabric_faults import BaseFault


class SecureBoot(BaseFault):
    """The firmware boots signed code alone: modules that the machine built itself are refused."""

    kind: Literal["secure-boot"] = "secure-boot"


class GpuInUse(BaseFault):
    """A process computes on the machine's GPUs."""

    kind: Literal["gpu-in-use"] = "gpu-in-use"
    pid: int = 4711
    name: str = "python3"


class PackageGone(BaseFault):
    """The repository has packages of the driver no more: it is not set up, or they were withdrawn."""

    kind: Literal["package-gone"] = "package-gone"
    name: str = ""
    """Beginning of the packages' names; empty: all of the driver."""
