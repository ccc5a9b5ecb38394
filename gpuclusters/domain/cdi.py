"""CDI specs for VFIO GPUs: the rules, the file that we write, the least version it needs.

A CDI spec tells the container runtime what a qualified device name stands for. Ours map
`vendor/class=name` to the VFIO nodes of one PCI function, so that a sandboxed container (a VM)
gets that GPU and no other.
Source: Container Device Interface specification 1.1.0 and `pkg/parser`, `pkg/cdi/version.go`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gpuclusters.domain.cdi_rules import (
    check_device_name,
    check_kind,
    check_spec_path,
    faults_in,
    minimum_version,
)
from gpuclusters.domain.connection import HostConnection
from gpuclusters.domain.module_map import MapSource
from gpuclusters.domain.ports import PciFunction
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.text import matches

# The mark of ownership is in the file itself: it is written and renamed together with the rest,
# so that no crash leaves a file without its mark, and it travels when an operator copies the file.
OWNER_ANNOTATION = "gpu-clusters.dev/managed-by"
OWNER = "gpu-clusters"
PCI_ANNOTATION = "gpu-clusters.dev/pci-address"

# Where runtimes look, static first; the second is for generated specs and wins over the first.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_SUFFIXES = (".json", ".yaml")

VFIO_DRIVER = "vfio-pci"
VFIO_CONTROL_NODE = "/dev/vfio/vfio"
IOMMUFD_NODE = "/dev/iommu"
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


def require_vfio(
    place: str, devices: Sequence[CdiDevice], found: Mapping[str, PciFunction]
) -> None:
    """Check that each device can be given to a VM.

    Raises:
        RefusalError: a function is missing, not bound to vfio-pci, or without an IOMMU group;
            all of them are named.
    """
    faults: list[str] = []
    remedies: dict[str, None] = {}
    for device in devices:
        function = found[device.pci_address]
        if not function.present:
            faults.append(f"device {device.name}: there is no PCI function {device.pci_address}")
            remedies["compare with `lspci -Dnn -d 10de:` on the host"] = None
        elif function.driver != VFIO_DRIVER:
            bound = function.driver or "no driver"
            faults.append(
                f"device {device.name}: {device.pci_address} is bound to {bound}, "
                f"not to {VFIO_DRIVER}"
            )
            remedies[f"bind it with `driverctl set-override ADDRESS {VFIO_DRIVER}`"] = None
        elif function.iommu_group is None:
            faults.append(f"device {device.name}: {device.pci_address} is in no IOMMU group")
            remedies["switch the IOMMU on (intel_iommu=on or amd_iommu=on, and in the BIOS)"] = None
    if faults:
        raise RefusalError(place, "; ".join(faults), " and ".join(remedies))


def render(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> str:
    """The file for these devices; JSON, which is YAML too, so that the suffix does not matter.

    Raises:
        RefusalError: two devices share an IOMMU group; they could only be passed on together.
    """
    backend = choose_backend(spec, found)
    groups: dict[str, CdiDevice] = {}
    devices: list[dict[str, Any]] = []
    for device in spec.devices:
        group = str(found[device.pci_address].iommu_group)
        if group in groups:
            raise RefusalError(
                spec.natural_id,
                f"{device.pci_address} and {groups[group].pci_address} are both in IOMMU group "
                f"{group}, so neither can be given to a VM alone",
                "switch on ACS for the PCIe switches in the BIOS",
            )
        groups[group] = device
        devices.append(
            {
                "name": device.name,
                "annotations": {PCI_ANNOTATION: device.pci_address},
                "containerEdits": {
                    "deviceNodes": [_node(_own_node(backend, found[device.pci_address]))]
                },
            }
        )
    document: dict[str, Any] = {
        "cdiVersion": "",
        "kind": spec.kind,
        "annotations": {OWNER_ANNOTATION: OWNER},
        "devices": devices,
        "containerEdits": {"deviceNodes": [_node(_SHARED[backend])]},
    }
    document["cdiVersion"] = minimum_version(document)
    faults = faults_in(document)
    if faults:  # our own rendering breaks the rules: never put it where a runtime reads it
        raise RefusalError(spec.natural_id, "; ".join(faults), "correct the inputs")
    return json.dumps(document, indent=2) + "\n"


_SHARED = {VfioBackend.LEGACY: VFIO_CONTROL_NODE, VfioBackend.IOMMUFD: IOMMUFD_NODE}


def choose_backend(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> VfioBackend:
    """Legacy or IOMMUFD, for all devices of the spec alike: a VM uses one of the two.

    Raises:
        RefusalError: IOMMUFD is asked for and the host does not have it for every GPU.
    """
    if spec.vfio is VfioBackend.LEGACY:
        return VfioBackend.LEGACY
    without = [
        f"device {d.name} ({d.pci_address})"
        for d in spec.devices
        if found[d.pci_address].vfio_device is None
    ]
    if not without:
        return VfioBackend.IOMMUFD
    if spec.vfio is VfioBackend.AUTO:
        return VfioBackend.LEGACY
    raise RefusalError(
        spec.natural_id,
        f"{', '.join(without)} has no /dev/vfio/devices/vfio<n> with {IOMMUFD_NODE} beside it",
        "boot a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or write vfio: legacy",
    )


def _own_node(backend: VfioBackend, function: PciFunction) -> str:
    if backend is VfioBackend.IOMMUFD:
        return f"/dev/vfio/devices/{function.vfio_device}"
    return f"/dev/vfio/{function.iommu_group}"


def _node(path: str) -> dict[str, str]:
    return {"path": path, "type": "c", "permissions": "rw"}


def parse(content: bytes) -> dict[str, Any] | None:
    """The document in a CDI file, JSON or YAML; None if it is neither or no mapping."""
    document: object
    try:
        document = json.loads(content)  # what we write, and far faster than YAML
    except ValueError:
        try:
            document = yaml.safe_load(content)
        except (yaml.YAMLError, UnicodeDecodeError):
            return None
    return document if isinstance(document, dict) else None


def is_ours(content: bytes) -> bool:
    """Whether the file carries our mark."""
    annotations = (parse(content) or {}).get("annotations")
    return isinstance(annotations, dict) and annotations.get(OWNER_ANNOTATION) == OWNER


def devices_in(content: bytes) -> tuple[str, list[dict[str, str]]]:
    """Kind and devices of a file of ours, in the shape of the inputs; empty where it cannot say."""
    document = parse(content) or {}
    devices: list[dict[str, str]] = []
    for device in _mappings(document.get("devices")):
        annotations = device.get("annotations")
        address = annotations.get(PCI_ANNOTATION, "") if isinstance(annotations, dict) else ""
        devices.append({"name": str(device.get("name", "")), "pci_address": str(address)})
    return str(document.get("kind", "")), devices


def conflicts(spec: CdiSpecInputs, others: Mapping[str, bytes]) -> list[str]:
    """Qualified names that other files define too, each with its file.

    In a folder of equal priority such a device becomes unusable; in the other folder one file
    silently hides the other. Both are faults.
    """
    found: list[str] = []
    for path, content in sorted(others.items()):
        if path == spec.path:
            continue
        kind, devices = devices_in(content)
        names = {f"{kind}={d['name']}" for d in devices}
        found += [f"{name} in {path}" for name in spec.qualified_names if name in names]
    return found


def _mappings(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
