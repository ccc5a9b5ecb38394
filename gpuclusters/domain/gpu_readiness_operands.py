"""Whether the operator has seen the policy as it is: DaemonSets show the images and ConfigMaps that it names.

The policy's status names no generation. After an upgrade the new operator may wait a minute for the old one's
leadership, and until then all that can be seen is the good state of the version before.
Source: NVIDIA/gpu-operator v26.7.0, `api/nvidia/v1/clusterpolicy_types.go` (imagePath),
`controllers/object_controls.go` (Transform…).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Object = Mapping[str, Any]

SECTIONS: Final = {
    "nvidia-driver-daemonset": "driver",
    "nvidia-container-toolkit-daemonset": "toolkit",
    "nvidia-device-plugin-daemonset": "devicePlugin",
    "nvidia-dcgm-exporter": "dcgmExporter",
    "gpu-feature-discovery": "gfd",
    "nvidia-mig-manager": "migManager",
    "nvidia-operator-validator": "validator",
}
"""Part of the ClusterPolicy by DaemonSet."""


def unseen(policy: Object | None, daemon_set: Object) -> str:
    """What of the policy a DaemonSet does not show yet; empty if it shows all, or is none of these."""
    name = str(daemon_set["metadata"]["name"])
    spec = (policy or {}).get("spec") or {}
    section = spec.get(SECTIONS.get(name, "")) or {}
    template = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    if not section or not containers:
        return ""
    wanted = image(section)
    images = [str(one.get("image", "")) for one in containers]
    # Behind a driver's version stands the operating system, and the kernel if it is precompiled.
    if wanted and not any(found == wanted or found.startswith(f"{wanted}-") for found in images):
        return f"image {wanted}"
    config = str((section.get("config") or {}).get("name") or "")
    if config and json.dumps(config) not in json.dumps(template):
        return f"ConfigMap {config}"
    return ""


def image(section: Object) -> str:
    """The image that a part of the policy names; empty if the operator chooses."""
    parts = [str(section.get(key) or "") for key in ("repository", "image", "version")]
    if not all(parts):
        return ""
    repository, name, version = parts
    return f"{repository}/{name}{'@' if version.startswith('sha256:') else ':'}{version}"
