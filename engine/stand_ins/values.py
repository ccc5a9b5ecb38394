"""Property values inside a provider, and the structs they travel in.

The values themselves are the engine's (`engine.values`): `Secret` around what is secret, `UNKNOWN`
for what a preview does not know yet, `Asset` for files. Resource references arrive as ids, because the
providers here do not accept references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf import struct_pb2

from engine.values import (
    ARCHIVE,
    ASSET,
    UNKNOWN,
    Asset,
    Reference,
    Secret,
    Unknown,
    contains_secret,
    contains_unknown,
    from_wire,
    reveal,
    to_wire,
)

__all__ = [
    "ARCHIVE",
    "ASSET",
    "UNKNOWN",
    "Asset",
    "Properties",
    "Secret",
    "Unknown",
    "Value",
    "contains_secret",
    "contains_unknown",
    "decode",
    "encode",
    "from_wire",
    "mark_secrets",
    "plain",
    "plain_properties",
]

Value = Any  # the engine's Value; provider code looks inside by isinstance all the time
Properties = dict[str, Value]


def decode(message: struct_pb2.Struct | None) -> Properties:
    """The properties in a struct; whole numbers become `int`, because every number travels as a double."""
    if message is None:
        return {}
    return {
        key: _without_references(from_wire(_json(item))) for key, item in message.fields.items()
    }


def _json(message: struct_pb2.Value) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _json(item) for key, item in message.struct_value.fields.items()}
    if kind == "list_value":
        return [_json(item) for item in message.list_value.values]
    return None if kind in (None, "null_value") else getattr(message, kind)


def _without_references(value: Value) -> Value:
    if isinstance(value, Reference):
        return value.urn if value.id is None else value.id
    if isinstance(value, list):
        return [_without_references(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_references(item) for key, item in value.items()}
    if isinstance(value, Secret):
        return Secret(_without_references(value.value))
    return value


def encode(properties: Mapping[str, Value], *, keep_secrets: bool = True) -> struct_pb2.Struct:
    """The struct for properties; with `keep_secrets=False` secrets travel without their mark."""
    message = struct_pb2.Struct()
    for key, value in properties.items():
        _fill(message.fields[key], to_wire(value, secrets=keep_secrets))
    return message


def _fill(into: struct_pb2.Value, value: Any) -> None:
    if value is None:
        into.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int | float):
        into.number_value = value
    elif isinstance(value, str):
        into.string_value = value
    elif isinstance(value, Mapping):
        into.struct_value.SetInParent()
        for key, item in value.items():
            _fill(into.struct_value.fields[key], item)
    elif isinstance(value, list | tuple):
        into.list_value.SetInParent()
        for item in value:
            _fill(into.list_value.values.add(), item)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be a property value")


def plain(value: Value) -> Value:
    """A copy of `value` without the marks of secrets."""
    return reveal(value)


def plain_properties(value: Mapping[str, Value]) -> Properties:
    """`plain` for a whole set of properties."""
    return cast("Properties", reveal(dict(value)))


def mark_secrets(outputs: Value, inputs: Value) -> Value:
    """`outputs` with those values secret whose counterpart in `inputs` is, or holds, a secret.

    Maps are walked key by key; a list with a secret inside becomes secret as a whole, since positions
    shift.
    """
    if isinstance(outputs, Secret) or not contains_secret(inputs):
        return outputs
    if isinstance(outputs, Mapping) and isinstance(inputs, Mapping):
        return {
            key: mark_secrets(value, inputs[key]) if key in inputs else value
            for key, value in outputs.items()
        }
    return Secret(plain(outputs))
