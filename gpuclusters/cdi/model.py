"""Inputs of the CDI spec of a host's passthrough GPUs.

Source of the rules of names: Container Device Interface specification 1.1.0, `pkg/parser`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from gpuclusters.core.model import Strict
from gpuclusters.core.section import PciAddress
from gpuclusters.fabric.table import MapSource, repeated
from gpuclusters.host.model import HostConnection, check_path

# Cleared at boot, which is when the kernel numbers VFIO devices anew.
BOOT_FOLDER = "/var/run/cdi/"


_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SPEC_PATH = re.compile(r"(/etc/cdi|/var/run/cdi)/[^/]+\.(json|yaml)")


def check_kind(kind: str) -> str:
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        raise ValueError("a kind is vendor/class, like 'nvidia.com/pgpu'")
    for what, text, limit in (("vendor", vendor, 253), ("class", class_, 63)):
        if not _VENDOR.fullmatch(text) or len(text) > limit:
            raise ValueError(
                f"the {what} {text!r} must start with a letter, end with a letter or digit, hold "
                f"only letters, digits, '_', '-' and '.', and have at most {limit} characters"
            )
    return kind


def check_device_name(name: str) -> str:
    if not _DEVICE.fullmatch(name):
        raise ValueError(
            "a device name must start and end with a letter or digit and hold only letters, "
            "digits, '_', '-', '.' and ':'"
        )
    return name


def check_spec_path(path: str) -> str:
    """The path, if a runtime would read a spec there."""
    check_path(path)
    if not _SPEC_PATH.fullmatch(path):
        raise ValueError(
            "runtimes read CDI specs only from *.json and *.yaml directly in /etc/cdi (static) "
            "and /var/run/cdi (generated); write a path there"
        )
    return path


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


class CdiDevice(Strict):
    """One device of the spec: its CDI name and the PCI function it stands for."""

    name: Annotated[str, AfterValidator(check_device_name)]
    pci_address: PciAddress


class CdiSpecInputs(Strict):
    """Inputs of a CDI spec on one host."""

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
        for what, key in (("name", "name"), ("PCI address", "pci_address")):
            if twice := sorted(repeated(getattr(device, key) for device in self.devices)):
                raise ValueError(
                    f"devices: the {what} {', '.join(twice)} is used more than once; "
                    f"give each device a {what} of its own"
                )
        return self

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}:{self.path}"

    @property
    def configured_map(self) -> dict[int, str]:
        """PCI address by module, of devices that are named by module."""
        return {int(d.name): d.pci_address for d in self.devices if d.name.isdecimal()}

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """As containers ask for the devices: `vendor/class=name`."""
        return tuple(f"{self.kind}={d.name}" for d in self.devices)
