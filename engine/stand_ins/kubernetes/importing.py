"""Inputs that describe an object as it is in the cluster: after a refresh, and for an import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.stand_ins.comparison import same
from engine.stand_ins.kubernetes.objects import (
    Object,
    metadata_of,
    name_of,
    namespace_of,
    prune,
    with_encoded_data,
)

# Set by the cluster itself; a program that repeated them would fight with it.
_CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def inputs_of(live: Object) -> Object:
    """What a program would have to say to get this object.

    Taken from the fields that people and tools own (`metadata.managedFields`), so that defaults filled in
    by the server stay out. Objects without ownership records are taken whole, without their status.
    """
    picked: Object = {}
    for entry in metadata_of(live).get("managedFields") or ():
        if entry.get("subresource") or str(entry.get("manager")) in _CONTROLLERS:
            continue
        _merge(picked, _pick(live, entry.get("fieldsV1") or {}))
    if not picked:
        picked = {key: value for key, value in live.items() if key not in ("status", "metadata")}
        picked["metadata"] = {
            key: metadata_of(live)[key]
            for key in ("labels", "annotations")
            if key in metadata_of(live)
        }
    picked.pop("status", None)
    metadata = dict(metadata_of(picked))
    metadata["name"] = name_of(live)
    if namespace_of(live):
        metadata["namespace"] = namespace_of(live)
    annotations = {
        k: v for k, v in (metadata.get("annotations") or {}).items() if k != _LAST_APPLIED
    }
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return {
        **picked,
        "apiVersion": live.get("apiVersion"),
        "kind": live.get("kind"),
        "metadata": metadata,
    }


def refreshed_inputs(live: Object, old_inputs: Object, recorded: Object) -> Object:
    """Recorded inputs as they are in the cluster now.

    What did not change since it was recorded keeps the program's spelling (`1024Gi`, where the server says
    `1Ti`), and a Secret its texts.
    """
    shape = with_encoded_data(old_inputs)
    inputs: Object = _as_written(shape, prune(recorded, shape), prune(live, shape))
    if "stringData" not in old_inputs:
        return inputs
    kept = {
        key: text
        for key, text in old_inputs["stringData"].items()
        if with_encoded_data({"kind": "Secret", "stringData": {key: text}})["data"].get(key)
        == (inputs.get("data") or {}).get(key)
    }
    data = {key: value for key, value in (inputs.get("data") or {}).items() if key not in kept}
    inputs["stringData"] = kept
    inputs.pop("data", None)
    return {**inputs, "data": data} if data else inputs


def _as_written(old: Any, recorded: Any, live: Any) -> Any:
    if same(recorded, live):
        return old
    if isinstance(old, Mapping) and isinstance(recorded, Mapping) and isinstance(live, Mapping):
        return {key: _as_written(old[key], recorded.get(key), value) for key, value in live.items()}
    return live


def _pick(live: Any, fields: Mapping[str, Any]) -> Any:
    """The part of `live` that an ownership record (`fieldsV1`) names."""
    if not any(key != "." for key in fields):
        return live
    if isinstance(live, list):
        return _pick_items(live, fields)
    if not isinstance(live, Mapping):
        return live
    picked = {}
    for key, inner in fields.items():
        name = key.removeprefix("f:")
        if key.startswith("f:") and name in live:
            picked[name] = _pick(live[name], inner)
    return picked


def _pick_items(live: list[Any], fields: Mapping[str, Any]) -> list[Any]:
    picked = []
    for item in live:
        for key, inner in fields.items():
            form, _, text = key.partition(":")
            if form == "v" and json.loads(text) == item:
                picked.append(item)
            elif form == "k" and _matches(item, json.loads(text)):
                picked.append(_pick(item, inner))
    return picked


def _matches(item: Any, keys: Mapping[str, Any]) -> bool:
    return isinstance(item, Mapping) and all(item.get(key) == value for key, value in keys.items())


def _merge(into: Any, other: Any) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value
