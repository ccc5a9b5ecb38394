"""Check: inputs made complete (kind, name, namespace) or refused by name."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

from engine.answers import Checked, Failure
from engine.stand_ins.calls import Call
from engine.stand_ins.kubernetes.objects import (
    AUTONAMED,
    Object,
    annotation,
    is_patch,
    kind_of,
    kind_of_token,
    metadata_of,
    name_of,
    to_object,
    with_secrets,
)
from engine.stand_ins.values import Properties, Value
from engine.values import Secret, Unknown

_SUFFIX_LENGTH: Final = 8


def check(call: Call) -> Checked:
    """Inputs with API version, kind and name filled in, as the real provider does.

    A name is made up from the resource's name where the program gives none; the annotation
    `pulumi.com/autonamed` records that, so that the next check finds the same name.
    """
    inputs = dict(call.news)
    failures = _refusals(call, to_object(inputs))
    if failures:
        return Checked(inputs, failures)
    token = kind_of_token(call.resource.type)
    inputs.setdefault("apiVersion", token.api_version)
    inputs.setdefault("kind", token.kind)
    metadata = _metadata(inputs)
    if metadata is not None and not metadata.get("name"):
        failure = _name(call, metadata)
        if failure is not None:
            return Checked(inputs, [failure])
        inputs["metadata"] = metadata
    if inputs["kind"] == "Secret":
        inputs = with_secrets(inputs, inputs)
    return Checked(inputs)


def with_namespace(inputs: Properties, namespace: str) -> Properties:
    """Inputs in `namespace`, unless they name one or that is not known yet."""
    metadata = _metadata(inputs)
    if metadata is None or metadata.get("namespace"):
        return inputs
    return {**inputs, "metadata": {**metadata, "namespace": namespace}}


def _metadata(inputs: Properties) -> dict[str, Value] | None:
    """A copy of the metadata; None where all of it is unknown or secret."""
    metadata = inputs.get("metadata") or {}
    return dict(metadata) if isinstance(metadata, Mapping) else None


def _name(call: Call, metadata: dict[str, Value]) -> Failure | None:
    if metadata.get("generateName"):
        return Failure(
            "metadata.generateName",
            "metadata.generateName does not work with server-side apply; "
            "set metadata.name, or leave both out",
        )
    old = to_object(call.old_inputs)
    if annotation(old, AUTONAMED) == "true" and name_of(old):
        name = name_of(old)
    elif old:
        return None  # a name was taken out of the program: the diff will replace the object
    elif not call.autonaming:
        return Failure("metadata.name", "automatic names are switched off; set metadata.name")
    else:
        name = call.proposed_name or _invented(call)
    annotations = metadata.get("annotations") or {}
    if isinstance(annotations, Secret | Unknown):
        return Failure(
            "metadata.name",
            "metadata.name must be set where metadata.annotations are secret or unknown",
        )
    metadata["name"] = name
    metadata["annotations"] = {**annotations, AUTONAMED: "true"}
    return None


def _invented(call: Call) -> str:
    """Name and random suffix; with the engine's seed the preview and the update agree."""
    if call.seed:
        digest = hashlib.sha256(call.seed + call.resource.urn.encode()).hexdigest()
    else:
        digest = secrets.token_hex(_SUFFIX_LENGTH)
    return f"{call.resource.name}-{digest[:_SUFFIX_LENGTH]}"


def _refusals(call: Call, obj: Object) -> list[Failure]:
    token = call.resource.type.rpartition(":")[2]
    kind = kind_of(obj).kind or token
    if is_patch(call.resource.type, obj) and "name" not in metadata_of(obj):
        return [Failure("metadata.name", f"{token} must name the object to patch in metadata.name")]
    if kind.endswith("List") and "items" in obj:
        return [
            Failure("items", f"{kind} is a list of objects; declare the objects one by one instead")
        ]
    return [
        Failure(
            f'metadata.annotations["{key}"]', f"{key} is not supported by the kubernetes stand-in"
        )
        for key in ("pulumi.com/replaceUnready", "pulumi.com/waitFor")
        if annotation(obj, key)
    ]
