"""Property values to and from the protobuf structs in which they travel."""

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
    struct.update(
        {
            key: to_wire(values[key], secrets=secrets, references=references)
            for key in sorted(values)
        }
    )
    return struct


def marshal_value(value: Value) -> struct_pb2.Value:
    """One property value as a protobuf value, with its marks."""
    return marshal({"": value}).fields[""]


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
