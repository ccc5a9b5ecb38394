"""The rules of the CDI specification: names, fields, and which version each needs.

Source: Container Device Interface specification 1.1.0, `pkg/parser` and `pkg/cdi/version.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.host.model import check_path

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SPEC_PATH = re.compile(r"(/etc/cdi|/var/run/cdi)/[^/]+\.(json|yaml)")

_ANNOTATION = re.compile(r"([a-z0-9][a-z0-9_.-]*)?[a-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_NO_PERMISSIONS = "none"

_SPEC_FIELDS = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_DEVICE_FIELDS = {"name", "annotations", "containerEdits"}
_EDIT_FIELDS = {
    "env", "deviceNodes", "netDevices", "hooks", "mounts", "intelRdt", "additionalGids",
}  # fmt: skip
_NODE_FIELDS = {
    "path",
    "hostPath",
    "type",
    "major",
    "minor",
    "fileMode",
    "permissions",
    "uid",
    "gid",
}
_HOOKS = {
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
}  # fmt: skip


def check_kind(kind: str) -> str:
    """The kind, if it is `vendor/class`.

    Raises:
        ValueError: what is wrong with it.
    """
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
    """The device name, if CDI allows it.

    Raises:
        ValueError: what is wrong with it.
    """
    if not _DEVICE.fullmatch(name):
        raise ValueError(
            "a device name must start and end with a letter or digit and hold only letters, "
            "digits, '_', '-', '.' and ':'"
        )
    return name


def check_spec_path(path: str) -> str:
    """The path, if a runtime would read a spec there.

    Raises:
        ValueError: another folder, a subfolder or another suffix.
    """
    check_path(path)
    if not _SPEC_PATH.fullmatch(path):
        raise ValueError(
            "runtimes read CDI specs only from *.json and *.yaml directly in /etc/cdi (static) "
            "and /var/run/cdi (generated); write a path there"
        )
    return path


def minimum_version(document: Mapping[str, Any]) -> str:
    """The lowest released version that knows everything the spec uses."""
    needed = "0.3.0"
    for version in _features(document):
        needed = max(needed, version, key=VERSIONS.index)
    return needed


def _features(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("annotations"):
        yield "0.6.0"
    if "." in str(document.get("kind", "")).partition("/")[2]:
        yield "0.6.0"
    for device in document.get("devices") or ():
        if device.get("annotations"):
            yield "0.6.0"
        if str(device.get("name", ""))[:1].isdigit():
            yield "0.5.0"
        yield from _edit_features(device.get("containerEdits") or {})
    yield from _edit_features(document.get("containerEdits") or {})


def _edit_features(edits: Mapping[str, Any]) -> Iterator[str]:
    # An empty intelRdt counts: to the library it is there. An empty text counts for nothing.
    rdt = edits.get("intelRdt")
    if edits.get("netDevices") or (rdt and ("schemata" in rdt or rdt.get("enableMonitoring"))):
        yield "1.1.0"
    if rdt is not None or edits.get("additionalGids"):
        yield "0.7.0"
    if any(node.get("hostPath") for node in edits.get("deviceNodes") or ()):
        yield "0.5.0"
    if any(mount.get("type") for mount in edits.get("mounts") or ()):
        yield "0.4.0"


def faults_in(document: Mapping[str, Any]) -> list[str]:
    """Everything for which a runtime would refuse the spec; empty means that it loads."""
    return list(_faults(document))


def _faults(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("the spec", document, _SPEC_FIELDS)
    try:
        check_kind(str(document.get("kind", "")))
    except ValueError as error:
        yield f"kind: {error}"
    yield from _annotation_faults("the spec", document.get("annotations") or {})
    yield from _edit_faults("containerEdits", document.get("containerEdits") or {})
    devices = document.get("devices") or []
    if not devices:
        yield "devices: a spec needs at least one device"
    seen: set[str] = set()
    for device in devices:
        name = str(device.get("name", ""))
        where = f"device {name!r}"
        yield from _unknown(where, device, _DEVICE_FIELDS)
        yield from _annotation_faults(where, device.get("annotations") or {})
        if name in seen:
            yield f"{where}: the name is used twice"
        seen.add(name)
        try:
            check_device_name(name)
        except ValueError as error:
            yield f"{where}: {error}"
        edits = device.get("containerEdits") or {}
        if not any(edits.values()) and edits.get("intelRdt") is None:
            yield f"{where}: containerEdits must not be empty"
        yield from _edit_faults(where, edits)
    declared = str(document.get("cdiVersion", ""))
    needed = minimum_version(document)
    if declared not in VERSIONS:
        yield f"cdiVersion {declared!r} is not a released version ({', '.join(VERSIONS)})"
    elif VERSIONS.index(declared) < VERSIONS.index(needed):
        yield f"cdiVersion is {declared}, but what the spec uses needs {needed}"


def _edit_faults(where: str, edits: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(f"{where}: containerEdits", edits, _EDIT_FIELDS)
    for variable in edits.get("env") or ():
        if variable.find("=") <= 0:
            yield f"{where}: env {variable!r} must be NAME=value"
    for node in edits.get("deviceNodes") or ():
        yield from _unknown(f"{where}: device node", node, _NODE_FIELDS)
        if not node.get("path"):
            yield f"{where}: a device node needs a path"
        if node.get("type", "") not in ("", "b", "c", "u", "p"):
            yield f"{where}: device node type {node['type']!r} must be b, c, u or p"
        permissions = node.get("permissions", "")
        if permissions != _NO_PERMISSIONS and not set(permissions) <= set("rwm"):
            yield f"{where}: permissions {permissions!r} must be made of r, w and m"
    for hook in edits.get("hooks") or ():
        if hook.get("hookName") not in _HOOKS:
            yield f"{where}: hook {hook.get('hookName')!r} must be one of {', '.join(sorted(_HOOKS))}"
        if not hook.get("path"):
            yield f"{where}: a hook needs a path"
    for mount in edits.get("mounts") or ():
        if not mount.get("hostPath") or not mount.get("containerPath"):
            yield f"{where}: a mount needs hostPath and containerPath"
    for device in edits.get("netDevices") or ():
        if not device.get("hostInterfaceName") or not device.get("name"):
            yield f"{where}: a network device needs hostInterfaceName and name"


def _annotation_faults(where: str, annotations: Mapping[str, Any]) -> Iterator[str]:
    for key, value in annotations.items():
        prefix, slash, name = key.lower().rpartition("/")
        well_formed = _ANNOTATION.fullmatch(name) and len(name) <= _LONGEST_LABEL
        if slash:
            well_formed = (
                well_formed and _SUBDOMAIN.fullmatch(prefix) and len(prefix) <= _LONGEST_NAME
            )
        if not well_formed:
            yield f"{where}: annotation {key!r} is not named like one of Kubernetes"
        if not isinstance(value, str):
            yield f"{where}: annotation {key!r} must be a text"


def _unknown(where: str, given: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    for field in sorted(set(given) - known):
        yield f"{where}: unknown field {field!r}"
