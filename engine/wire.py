"""Property values to and from the protobuf structs in which they travel."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import struct_pb2

from engine.values import Value, Values, from_wire, to_wire


def unmarshal(struct: struct_pb2.Struct) -> Values:
    """The property map of a struct.

    Raises:
        ValueError: an object carries a signature that this engine does not know.
    """
    return {key: from_wire(_plain(value)) for key, value in struct.fields.items()}


def unmarshal_value(value: struct_pb2.Value) -> Value:
    """One property value.

    Raises:
        ValueError: an object carries a signature that this engine does not know.
    """
    return from_wire(_plain(value))


def marshal(
    values: Mapping[str, Value], *, secrets: bool = True, references: bool = True
) -> struct_pb2.Struct:
    """A struct of a property map; what the receiver does not accept is left out of the values."""
    struct = struct_pb2.Struct()
    for key in sorted(values):
        _fill(struct.fields[key], to_wire(values[key], secrets=secrets, references=references))
    return struct


def marshal_value(value: Value) -> struct_pb2.Value:
    """One property value as a protobuf value, with its marks."""
    message = struct_pb2.Value()
    _fill(message, to_wire(value))
    return message


def _plain(value: struct_pb2.Value) -> object:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "struct_value":
        return {k: _plain(v) for k, v in value.struct_value.fields.items()}
    if kind == "number_value":
        return value.number_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_plain(v) for v in value.list_value.values]
    return None


def _fill(message: struct_pb2.Value, value: object) -> None:
    if isinstance(value, str):
        message.string_value = value
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int | float):
        message.number_value = value
    elif isinstance(value, Mapping):
        fields = message.struct_value.fields
        message.struct_value.SetInParent()
        for key, item in value.items():
            _fill(fields[key], item)
    elif isinstance(value, list | tuple):
        items = message.list_value.values
        message.list_value.SetInParent()
        for item in value:
            _fill(items.add(), item)
    elif value is None:
        message.null_value = struct_pb2.NULL_VALUE
    else:
        raise TypeError(f"a value of type {type(value).__name__} cannot be sent to a provider")
