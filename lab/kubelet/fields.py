"""Fields of a pod that its containers may be told (`fieldRef`)."""

import re
from collections.abc import Mapping
from typing import Any

from lab.control_plane.ports import LOOPBACK

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_PATHS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
}


class FieldError(Exception):
    """There is no such field to tell; the text names it."""


def field(pod: Mapping[str, Any], path: str, address: str = "") -> str:
    """The field's value; `address` is the pod's own, known before its status has it.

    Raises:
        FieldError: the path is none that the stand-in knows.
    """
    if path in ("status.podIP", "status.podIPs"):
        return address
    if path in ("status.hostIP", "status.hostIPs"):
        return LOOPBACK
    if path in _PATHS:
        part, key = _PATHS[path]
        return str(pod[part].get(key, ""))
    keyed = _KEYED.fullmatch(path)
    if keyed is None:
        raise FieldError(path)
    return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
