"""CDI specs for VFIO GPUs: the file that we write, and how a host differs from it. Pure.

A CDI spec tells the container runtime what a qualified device name stands for. Ours map
`vendor/class=name` to the VFIO nodes of one PCI function, so that a sandboxed container (a VM)
gets that GPU and no other.
Source: Container Device Interface specification 1.1.0 and `pkg/parser`, `pkg/cdi/version.go`.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from gpuclusters.cdi.model import CdiSpecInputs, VfioBackend
from gpuclusters.core.adoption import value
from gpuclusters.core.finding import Finding, blocked, repair
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

# A runtime reads CDI specs as root; nobody else has to write them.
MODE, OWNED_BY = "0644", "root:root"
WRITE = "write"
_repair = partial(repair, step=WRITE, remedy="find out who else writes it")


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
        yield blocked("cdi.name-taken", spec.path, name=name)
    if live.file is None:
        yield _repair("cdi.missing", spec.path, missing=True)
        return
    if not is_ours(live.file.content):
        if not written and not spec.adopt:
            mark = f"the annotation {OWNER_ANNOTATION}: {OWNER}"
            yield blocked("cdi.file-foreign", spec.path, mark=mark)
            return
        yield _repair("cdi.file-replaced", spec.path)
    elif not broken:
        yield from _content(spec, live.file, render(spec, live.functions).encode())


def _content(spec: CdiSpecInputs, file: LiveFile, wanted: bytes) -> Iterator[Finding]:
    if file.content == wanted:
        if (file.mode, file.owner) != (MODE, OWNED_BY):
            yield _repair("cdi.mode", spec.path, file=file, wanted=f"{MODE} {OWNED_BY}")
    elif devices_in(file.content) == devices_in(wanted):
        yield _repair("cdi.nodes-changed", spec.path)
    else:
        yield _repair("cdi.devices-changed", spec.path)


def device_findings(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> Iterator[Finding]:
    """Devices that cannot be given to a VM of their own."""
    groups: dict[str, str] = {}
    for device in spec.devices:
        address = device.pci_address
        function, group = found[address], found[address].iommu_group
        told: dict[str, Any] = {"device": device, "group": group}
        told["bound"] = function.driver or "no driver"
        if not function.present:
            fault = "function-missing"
        elif function.driver != VFIO_DRIVER:
            fault = "not-on-vfio"
        elif group is None:
            fault = "no-iommu-group"
        elif group in groups:
            fault, told["other"] = "shared-iommu-group", groups[group]
        elif spec.vfio is VfioBackend.IOMMUFD and function.vfio_device is None:
            fault = "no-iommufd"
        else:
            groups[group] = address
            continue
        yield blocked(f"cdi.{fault}", address, **told)


def render(spec: CdiSpecInputs, found: Mapping[str, PciFunction]) -> str:
    """The file for these devices, of which there are no `device_findings`.

    JSON, which is YAML too, so that the suffix does not matter.
    """
    # Legacy or IOMMUFD for all devices alike: a VM uses one of the two.
    own = [found[d.pci_address] for d in spec.devices]
    shared, nodes = VFIO_CONTROL_NODE, [f"/dev/vfio/{one.iommu_group}" for one in own]
    if spec.vfio is not VfioBackend.LEGACY and all(one.vfio_device is not None for one in own):
        shared, nodes = IOMMUFD_NODE, [f"/dev/vfio/devices/{one.vfio_device}" for one in own]
    document: dict[str, Any] = {
        "cdiVersion": CDI_VERSION,
        "kind": spec.kind,
        "annotations": {OWNER_ANNOTATION: OWNER},
        "devices": [
            {
                "name": device.name,
                "annotations": {PCI_ANNOTATION: device.pci_address},
                "containerEdits": _gives(node),
            }
            for device, node in zip(spec.devices, nodes, strict=True)
        ],
        "containerEdits": _gives(shared),
    }
    return json.dumps(document, indent=2) + "\n"


def _gives(path: str) -> dict[str, Any]:
    return {"deviceNodes": [{"path": path, "type": "c", "permissions": "rw"}]}


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
    found = _mappings(document.get("devices"))
    marks = (m if isinstance(m := one.get("annotations"), dict) else {} for one in found)
    return str(document.get("kind", "")), [
        {"name": str(one.get("name", "")), "pci_address": str(mark.get(PCI_ANNOTATION, ""))}
        for one, mark in zip(found, marks, strict=True)
    ]


def conflicts(spec: CdiSpecInputs, others: Mapping[str, bytes]) -> list[str]:
    """Qualified names that other files define too, each with its file.

    In a folder of equal priority such a device becomes unusable; in the other folder one file
    silently hides the other. Both are faults.
    """
    found: list[str] = []
    for path, content in sorted(others.items()):
        kind, devices = devices_in(content)
        names = {f"{kind}={d['name']}" for d in devices} if path != spec.path else set()
        found += [f"{name} in {path}" for name in spec.qualified_names if name in names]
    return found


def effect_differences(spec: CdiSpecInputs, live: LiveCdi) -> Iterator[Finding]:
    """What a file that is there hands out otherwise, whoever wrote it."""
    path = (spec.path,)
    yield from (Finding("cdi.devices-changed", text, path=path) for text in _effects(spec, live))


def _effects(spec: CdiSpecInputs, live: LiveCdi) -> Iterator[str]:
    if live.file is None:
        return
    there = parse(live.file.content)
    if there is None:
        yield f"{spec.path} is neither JSON nor YAML"
        return
    here = json.loads(render(spec, live.functions))
    yield from value("kind", there.get("kind"), here["kind"])
    edits = (_edits(document.get("containerEdits")) for document in (there, here))
    yield from value("containerEdits", *edits)
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
