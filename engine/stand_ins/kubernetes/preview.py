"""What a dry run can say of an object that does not exist yet, and what only the real thing will know."""

import copy
from typing import Any, Final

from engine.stand_ins.kubernetes.client import ApiError
from engine.stand_ins.kubernetes.objects import Object, metadata_of
from engine.values import UNKNOWN

_NEW_METADATA: Final = ("creationTimestamp", "generation", "resourceVersion", "uid")
_CHANGED_METADATA: Final = ("generation", "resourceVersion")

# Allocated at creation; a dry run shows a number that the next one may get (Service, API reference).
_ALLOCATED: Final = ("clusterIP", "clusterIPs", "healthCheckNodePort")


def of_creation(live: Object, inputs: Object) -> Object:
    """The result of a dry run without what the server makes up anew each time."""
    live = copy.deepcopy(live)
    for key in _NEW_METADATA:
        metadata_of(live)[key] = UNKNOWN
    metadata_of(live).pop("managedFields", None)
    live.pop("status", None)
    if live.get("kind") == "Service":
        _hide_allocated(live.get("spec") or {}, inputs.get("spec") or {})
    return live


def of_update(live: Object) -> Object:
    """The result of a dry run of a change; its status follows only later."""
    live = copy.deepcopy(live)
    for key in _CHANGED_METADATA:
        metadata_of(live)[key] = UNKNOWN
    return live


def _hide_allocated(spec: dict[str, Any], asked: dict[str, Any]) -> None:
    for key in _ALLOCATED:
        if key in spec and key not in asked and spec[key] not in ("None", ["None"]):
            spec[key] = UNKNOWN
    given = {port.get("port"): port.get("nodePort") for port in asked.get("ports") or ()}
    for port in spec.get("ports") or ():
        if port.get("nodePort") and not given.get(port.get("port")):
            port["nodePort"] = UNKNOWN


def is_inconclusive(error: ApiError) -> bool:
    """Whether a refused dry run says nothing about the real run.

    The namespace may be made by the same run, a webhook may not support dry runs, the user may lack the
    right to try, and a replacement still has the old object in its way.
    """
    return (
        error.absent
        or error.status == 403
        or "does not support dry run" in error.message
        or (error.status == 422 and "immutable" in error.message)
    )
