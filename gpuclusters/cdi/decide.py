"""CDI specs for VFIO GPUs: the file that we write, and how a host differs from it. Pure.

A CDI spec tells the container runtime what a qualified device name stands for. Ours map
`vendor/class=name` to the VFIO nodes of one PCI function, so that a sandboxed container (a VM)
gets that GPU and no other.
Source: Container Device Interface specification 1.1.0 and `pkg/parser`, `pkg/cdi/version.go`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.cdi.model import CdiSpecInputs, VfioBackend
from gpuclusters.core.adoption import value
from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import LiveFile, PciFunction

# The mark of ownership is in the file itself: it is written and renamed together with the rest,
# so that no crash leaves a file without its mark, and it travels when an operator copies the file.
OWNER_ANNOTATION = "gpu-clusters.dev/managed-by"
OWNER = "gpu-clusters"
PCI_ANNOTATION = "gpu-clusters.dev/pci-address"

CDI_VERSION = "0.6.0"
"""The lowest that knows annotations."""

# Where runtimes look, static first; the second is for generated specs and wins over the first.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_SUFFIXES = (".json", ".yaml")

VFIO_DRIVER = "vfio-pci"
VFIO_CONTROL_NODE = "/dev/vfio/vfio"
IOMMUFD_NODE = "/dev/iommu"
_SHARED = {VfioBackend.LEGACY: VFIO_CONTROL_NODE, VfioBackend.IOMMUFD: IOMMUFD_NODE}

# A runtime reads CDI specs as root; nobody else has to write them.
MODE, OWNED_BY = "0644", "root:root"
WRITE = "write"


@dataclass(frozen=True, slots=True)
class LiveCdi:
    """What is on the host: our file, the others by path, the GPUs by address."""

    file: LiveFile | None
    others: Mapping[str, bytes]
    functions: Mapping[str, PciFunction]


def findings(spec: CdiSpecInputs, live: LiveCdi, *, written: bool) -> Iterator[Finding]:
    """How a host differs from its spec; `written` says that this resource has written the file before."""
    broken = [*device_findings(spec, live.functions)]
    yield from broken
    for name in conflicts(spec, live.others):
        problem = f"another CDI spec defines the same device: {name}"
        remedy = "remove that file or choose another kind; a name defined twice is unusable"
        yield Finding("cdi.name-taken", problem, remedy, (spec.path,))
    if live.file is None:
        yield _repair(spec, "cdi.missing", "is gone", missing=True)
        return
    if not is_ours(live.file.content):
        if not written and not spec.adopt:
            mark = f"the annotation {OWNER_ANNOTATION}: {OWNER}"
            problem = f"{spec.path}: the file is not ours (it lacks {mark})"
            remedy = "move it away, or take it over (adopt), if it hands out the same"
            yield Finding("cdi.file-foreign", problem, remedy, (spec.path,))
            return
        yield _repair(spec, "cdi.file-replaced", "was replaced by a file that is not ours")
    elif not broken:
        yield from _content(spec, live.file, render(spec, live.functions).encode())


def _content(spec: CdiSpecInputs, file: LiveFile, wanted: bytes) -> Iterator[Finding]:
    if file.content == wanted:
        if (file.mode, file.owner) != (MODE, OWNED_BY):
            words = f"has mode and owner {file.mode} {file.owner}, not {MODE} {OWNED_BY}"
            yield _repair(spec, "cdi.mode", words)
    elif devices_in(file.content) == devices_in(wanted):
        yield _repair(spec, "cdi.nodes-changed", "has other VFIO nodes than those of its devices")
    else:
        yield _repair(spec, "cdi.devices-changed", "has another kind or other devices")


def device_findings(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> Iterator[Finding]:
    """Devices that cannot be given to a VM of their own."""
    groups: dict[str, str] = {}
    for device in spec.devices:
        address = device.pci_address
        function = found[address]
        if not function.present:
            problem = f"device {device.name}: there is no PCI function {address}"
            remedy = "compare with `lspci -Dnn -d 10de:` on the host"
            yield Finding("cdi.function-missing", problem, remedy, (address,))
        elif function.driver != VFIO_DRIVER:
            bound = function.driver or "no driver"
            problem = f"device {device.name}: {address} is bound to {bound}, not to {VFIO_DRIVER}"
            remedy = f"bind it with `driverctl set-override ADDRESS {VFIO_DRIVER}`"
            yield Finding("cdi.not-on-vfio", problem, remedy, (address,))
        elif function.iommu_group is None:
            problem = f"device {device.name}: {address} is in no IOMMU group"
            remedy = "switch the IOMMU on (intel_iommu=on or amd_iommu=on, and in the BIOS)"
            yield Finding("cdi.no-iommu-group", problem, remedy, (address,))
        elif function.iommu_group in groups:
            other = groups[function.iommu_group]
            problem = (
                f"{address} and {other} are both in IOMMU group {function.iommu_group}, so neither "
                "can be given to a VM alone"
            )
            remedy = "switch on ACS for the PCIe switches in the BIOS"
            yield Finding("cdi.shared-iommu-group", problem, remedy, (address,))
        elif spec.vfio is VfioBackend.IOMMUFD and function.vfio_device is None:
            problem = (
                f"device {device.name} ({address}) has no /dev/vfio/devices/vfio<n> with "
                f"{IOMMUFD_NODE} beside it"
            )
            remedy = "boot a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or write vfio: legacy"
            yield Finding("cdi.no-iommufd", problem, remedy, (address,))
        else:
            groups[function.iommu_group] = address


def render(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> str:
    """The file for these devices, of which there are no `device_findings`.

    JSON, which is YAML too, so that the suffix does not matter.
    """
    # Legacy or IOMMUFD for all devices alike: a VM uses one of the two.
    own = [found[d.pci_address] for d in spec.devices]
    all_have_their_own = all(function.vfio_device is not None for function in own)
    backend = VfioBackend.LEGACY
    if spec.vfio is not VfioBackend.LEGACY and all_have_their_own:
        backend = VfioBackend.IOMMUFD
    document: dict[str, Any] = {
        "cdiVersion": CDI_VERSION,
        "kind": spec.kind,
        "annotations": {OWNER_ANNOTATION: OWNER},
        "devices": [
            {
                "name": device.name,
                "annotations": {PCI_ANNOTATION: device.pci_address},
                "containerEdits": {"deviceNodes": [_node(_own_node(backend, function))]},
            }
            for device, function in zip(spec.devices, own, strict=True)
        ],
        "containerEdits": {"deviceNodes": [_node(_SHARED[backend])]},
    }
    return json.dumps(document, indent=2) + "\n"


def _own_node(backend: VfioBackend, function: PciFunction) -> str:
    if backend is VfioBackend.IOMMUFD:
        return f"/dev/vfio/devices/{function.vfio_device}"
    return f"/dev/vfio/{function.iommu_group}"


def _node(path: str) -> dict[str, str]:
    return {"path": path, "type": "c", "permissions": "rw"}


def _repair(spec: CdiSpecInputs, code: str, words: str, *, missing: bool = False) -> Finding:
    remedy = "find out who else writes it"
    return Finding(code, f"{spec.path} {words}", remedy, (spec.path,), Level.REPAIR, WRITE, missing)


def parse(content: bytes) -> dict[str, Any] | None:
    """The document in a CDI file, JSON or YAML; None if it is neither or no mapping."""
    document: object = None
    try:
        document = json.loads(content)  # what we write, and far faster than YAML
    except ValueError:
        with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError):
            document = yaml.safe_load(content)
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


def effect_differences(spec: CdiSpecInputs, live: LiveCdi) -> Iterator[Finding]:
    """What a file that is there hands out otherwise, whoever wrote it."""
    for words in _effects(spec, live):
        yield Finding("cdi.devices-changed", words, path=(spec.path,))


def _effects(spec: CdiSpecInputs, live: LiveCdi) -> Iterator[str]:
    if live.file is None:
        return
    there = parse(live.file.content)
    if there is None:
        yield f"{spec.path} is neither JSON nor YAML"
        return
    here = json.loads(render(spec, live.functions))
    yield from value("kind", there.get("kind"), here["kind"])
    yield from value(
        "containerEdits", _edits(there.get("containerEdits")), _edits(here["containerEdits"])
    )
    theirs, ours = _devices(there), _devices(here)
    for name in sorted(theirs.keys() | ours.keys(), key=lambda n: (len(n), n)):
        if name not in ours:
            yield f"it has a device {name}, which is not declared"
        elif name not in theirs:
            yield f"it has no device {name}"
        else:
            yield from value(f"device {name}", theirs[name], ours[name])


def _devices(document: Mapping[str, Any]) -> dict[str, Any]:
    devices = _mappings(document.get("devices"))
    return {str(device.get("name")): _edits(device.get("containerEdits")) for device in devices}


def _edits(stated: Any) -> dict[str, Any]:
    """Edits of a container in one form: nodes by path, with what a runtime takes where nothing is said."""
    if not isinstance(stated, Mapping):
        return {}
    edits = {key: value for key, value in stated.items() if value and key != "deviceNodes"}
    for node in _mappings(stated.get("deviceNodes")):
        rest = {k: v for k, v in node.items() if k not in _USUAL}
        access = "".join(sorted(str(node.get("permissions", "rwm")).replace("m", "")))
        edits[f"{node.get('path')} ({access})"] = rest or True
    return edits


_USUAL = ("path", "type", "hostPath", "permissions")
"""Fields of a device node whose form makes no difference."""


def _mappings(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
