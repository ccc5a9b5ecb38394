"""Which changes of an object cannot be made in place.

The fields are those that the API server rejects changes of (Kubernetes API reference, "immutable"), plus
those where the real provider replaces by choice: data of ConfigMaps and Secrets, so that what reads them
is rolled, and the whole of a Pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine import paths
from engine.stand_ins.comparison import Changes
from engine.stand_ins.kubernetes.client import ApiError
from engine.stand_ins.kubernetes.objects import (
    AUTONAMED,
    Object,
    annotation,
    known_kinds,
    name_of,
    namespace_of,
)

_IDENTITY: Final = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
# How the API server and its validation code say that a field cannot change.
_REFUSALS: Final = (
    "field is immutable",
    "is immutable after creation",
    "may not be changed",
    "may not be modified",
    "may not be updated",
    "cannot be changed",
    "cannot change roleref",
    "updates to statefulset spec for fields other than",
    "updates to parameters are forbidden",
    "updates to provisioner are forbidden",
)


@dataclass(frozen=True)
class Mutability:
    """The provider's options about in-place changes."""

    config_map: bool = False
    secret: bool = False


def immutable_fields(obj: Object, mutability: Mutability) -> list[paths.Path]:
    """Paths whose change needs a new object."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    kind = str(obj.get("kind", ""))
    fields = list(known_kinds()["immutable"].get(group, {}).get(kind, ()))
    if group == "" and kind == "ConfigMap" and (not mutability.config_map or obj.get("immutable")):
        fields += ["data", "binaryData"]
    if group == "" and kind == "Secret" and (not mutability.secret or obj.get("immutable")):
        fields += ["data", "stringData"]
    return [*identity_fields(), *(paths.parse(field) for field in fields)]


def identity_fields() -> list[paths.Path]:
    """Paths whose change means another object."""
    return [paths.parse(field) for field in _IDENTITY]


def refused_fields(error: ApiError) -> list[paths.Path]:
    """The fields that the API server says cannot change; empty if it refused for another reason."""
    if error.status not in (403, 422):
        return []
    fields = []
    for cause in error.causes:
        text = str(cause.get("message", "")).lower()
        if any(refusal in text for refusal in _REFUSALS):
            fields.append(_path(str(cause.get("field", ""))))
    if not fields and any(refusal in error.message.lower() for refusal in _REFUSALS):
        fields.append(())
    return fields


def _path(field: str) -> paths.Path:
    try:
        return paths.parse(field)
    except ValueError:
        return ()


def with_replacements(changes: Changes, fields: Sequence[paths.Path]) -> Changes:
    """The changes, those of `fields` made by replacement."""
    return {
        path: kind.with_replace() if any(paths.touches(field, path) for field in fields) else kind
        for path, kind in changes.items()
    }


def old_one_first(old: Object, new: Object) -> bool:
    """Whether a replacement has to delete first: the new object must have the old one's fixed name."""
    return (
        bool(name_of(new))
        and annotation(new, AUTONAMED) != "true"
        and name_of(new) == name_of(old)
        and namespace_of(new) == namespace_of(old)
    )
