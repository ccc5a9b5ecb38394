"""Faults of a machine's hardware, firmware setup and operating system, as a preflight meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from pydantic import Field

from lab.hosts.service_vm.fabric_faults import BaseFault

_T = TypeVar("_T", bound=BaseFault)
_G = TypeVar("_G", bound="GpuFault")


class GpuFault(BaseFault):
    """A fault of one GPU or of all."""

    module: int | None = Field(default=None, ge=1, le=8)
    """The GPU's number on the baseboard; None: every GPU of the host."""


class ResetNotSupported(GpuFault):
    """The bridge above the GPU is hidden: it cannot be reset, which the real tool reports with exit 0."""

    kind: Literal["reset-not-supported"] = "reset-not-supported"


class GpuFellOffTheBus(GpuFault):
    """The GPU answers nothing but ones: `lspci` shows revision ff."""

    kind: Literal["gpu-fell-off-the-bus"] = "gpu-fell-off-the-bus"


class Faults(tuple[Any, ...]):
    """The faults of one host at one moment."""

    __slots__ = ()

    def all(self, kind: type[_T]) -> Iterator[_T]:
        """The faults of this kind."""
        return (fault for fault in self if isinstance(fault, kind))

    def first(self, kind: type[_T]) -> _T | None:
        """A fault of this kind, if there is any."""
        return next(self.all(kind), None)

    def of_gpu(self, kind: type[_G], module: int) -> _G | None:
        """A fault of this kind that concerns this GPU, if there is any."""
        return next((f for f in self.all(kind) if f.module in {None, module}), None)


class IommuOff(BaseFault):
    """VT-d is off in the firmware setup: no DMAR table. `kernel`: it is there, the kernel makes no groups."""

    kind: Literal["iommu-off"] = "iommu-off"
    where: Literal["firmware", "kernel"] = "firmware"


class AcsMissing(BaseFault):
    """ACS is off above two GPUs: they share an IOMMU group."""

    kind: Literal["acs-missing"] = "acs-missing"
    modules: tuple[int, int] = (5, 7)


class ForeignDevice(BaseFault):
    """A network card with its driver sits in a GPU's IOMMU group."""

    kind: Literal["foreign-device"] = "foreign-device"
    module: int = Field(default=1, ge=1, le=8)
    driver: str = "mlx5_core"


class GpuMissing(BaseFault):
    """The firmware did not find a GPU: there is nothing at its address."""

    kind: Literal["gpu-missing"] = "gpu-missing"
    module: int = Field(default=1, ge=1, le=8)


class OtherDevice(BaseFault):
    """Another device is at a GPU's address."""

    kind: Literal["other-device"] = "other-device"
    module: int = Field(default=1, ge=1, le=8)
    device: str = Field(default="1017", pattern="[0-9a-f]{4}")


class BarWrong(BaseFault):
    """A GPU's large memory window is not placed, is too small, or lies below 4 GiB."""

    kind: Literal["bar-wrong"] = "bar-wrong"
    module: int = Field(default=1, ge=1, le=8)
    how: Literal["not-placed", "small", "below-4g"] = "not-placed"


class HostDriver(BaseFault):
    """A GPU driver of the host: `installed` as a package, or `loaded` as a module."""

    kind: Literal["host-driver"] = "host-driver"
    driver: Literal["nvidia", "nouveau"] = "nvidia"
    how: Literal["installed", "loaded"] = "loaded"


class VfioNodeMissing(BaseFault):
    """The kernel made no device node for a GPU's group."""

    kind: Literal["vfio-node-missing"] = "vfio-node-missing"
    module: int = Field(default=1, ge=1, le=8)


class NotOnVfio(BaseFault):
    """A GPU lost its driver."""

    kind: Literal["not-on-vfio"] = "not-on-vfio"
    module: int = Field(default=1, ge=1, le=8)


class Processor(BaseFault):
    """The processor shows other flags: virtualization switched off, or a machine that is itself a VM."""

    kind: Literal["processor"] = "processor"
    without: tuple[str, ...] = ()
    having: tuple[str, ...] = ()


class MemoryLost(BaseFault):
    """The machine has so much memory, no more; modules failed."""

    kind: Literal["memory-lost"] = "memory-lost"
    gib: int = Field(default=1536, ge=1)


class NumaNodes(BaseFault):
    """The firmware setup splits sockets into several NUMA nodes."""

    kind: Literal["numa-nodes"] = "numa-nodes"
    count: int = Field(default=4, ge=1, le=8)


class OldVersion(BaseFault):
    """A program of the host is of another version."""

    kind: Literal["old-version"] = "old-version"
    program: Literal["kernel", "qemu", "libvirt"] = "kernel"
    version: str = Field(default="6.8.0-51-generic", pattern=r"[0-9]+(\.[0-9]+)+[-+~a-z0-9]*")


class ProgramMissing(BaseFault):
    """A program, a device node or a firmware image of the host is not there."""

    kind: Literal["program-missing"] = "program-missing"
    program: Literal["qemu", "libvirt", "ovmf", "kvm"] = "qemu"


class DiskNearlyFull(BaseFault):
    """The root file system has so little room left."""

    kind: Literal["disk-nearly-full"] = "disk-nearly-full"
    free_gib: int = Field(default=3, ge=0)


class ClockSkewed(BaseFault):
    """The clock of the host is wrong."""

    kind: Literal["clock-skewed"] = "clock-skewed"
    seconds: int = 400


HardwareFault = (
    IommuOff
    | AcsMissing
    | ForeignDevice
    | GpuMissing
    | OtherDevice
    | BarWrong
    | HostDriver
    | VfioNodeMissing
    | NotOnVfio
    | Processor
    | MemoryLost
    | NumaNodes
    | OldVersion
    | ProgramMissing
    | DiskNearlyFull
    | ClockSkewed
)
