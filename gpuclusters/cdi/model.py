"""Inputs of the CDI spec of a host's passthrough GPUs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gpuclusters.cdi.rules import check_device_name, check_kind, check_spec_path
from gpuclusters.domain.text import matches
from gpuclusters.fabric.table import MapSource
from gpuclusters.host.model import HostConnection

# Cleared at boot, which is when the kernel numbers VFIO devices anew.
BOOT_FOLDER = "/var/run/cdi/"


class VfioBackend(StrEnum):
    """How a VM is given a GPU: which nodes of /dev it opens."""

    LEGACY = "legacy"
    """/dev/vfio/<IOMMU group> and /dev/vfio/vfio."""
    IOMMUFD = "iommufd"
    """/dev/vfio/devices/vfio<n> and /dev/iommu."""
    AUTO = "auto"
    """IOMMUFD where the kernel gives every GPU a device of its own, else the legacy nodes."""


def spec_path(kind: str, backend: VfioBackend) -> str:
    """Where the spec of a kind lies: with the static ones, or where a reboot forgets it."""
    folder = "/etc/cdi/" if backend is VfioBackend.LEGACY else BOOT_FOLDER
    return f"{folder}{kind.replace('/', '-')}.json"


class CdiDevice(BaseModel):
    """One device of the spec: its CDI name and the PCI function it stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(check_device_name)]
    pci_address: Annotated[
        str,
        matches(
            r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]",
            "write domain:bus:device.function in lower case, like '0000:0f:00.0'",
        ),
    ]


class CdiSpecInputs(BaseModel):
    """Inputs of a CDI spec on one host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    path: Annotated[str, AfterValidator(check_spec_path)]
    kind: Annotated[str, AfterValidator(check_kind)]
    devices: Annotated[tuple[CdiDevice, ...], Field(min_length=1)]
    adopt: bool = False
    vfio: VfioBackend = VfioBackend.LEGACY
    module_map: MapSource = MapSource.READ

    @model_validator(mode="after")
    def _iommufd_is_forgotten_at_boot(self) -> CdiSpecInputs:
        if self.vfio is not VfioBackend.LEGACY and not self.path.startswith(BOOT_FOLDER):
            raise ValueError(
                "path: VFIO devices of IOMMUFD are numbered anew at every boot, so that a file "
                "that outlives it could hand out another tenant's GPU; write a path in "
                f"{BOOT_FOLDER}, or vfio: legacy"
            )
        return self

    @model_validator(mode="after")
    def _each_device_once(self) -> CdiSpecInputs:
        for what, values in (
            ("name", [d.name for d in self.devices]),
            ("PCI address", [d.pci_address for d in self.devices]),
        ):
            twice = sorted({v for v in values if values.count(v) > 1})
            if twice:
                raise ValueError(
                    f"devices: the {what} {', '.join(twice)} is used more than once; "
                    f"give each device a {what} of its own"
                )
        return self

    @property
    def natural_id(self) -> str:
        """`host:path`."""
        return f"{self.connection.host}:{self.path}"

    @property
    def configured_map(self) -> dict[int, str]:
        """PCI address by module, of devices that are named by module."""
        return {int(d.name): d.pci_address for d in self.devices if d.name.isdecimal()}

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """As containers ask for the devices: `vendor/class=name`."""
        return tuple(f"{self.kind}={d.name}" for d in self.devices)
