"""Property values inside a provider: those of `engine.values`, but for references to resources.

References arrive as ids, because the providers here do not accept references.
"""

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf import struct_pb2

from engine.values import Reference, Secret, contains_secret, reveal
from engine.wire import unmarshal

Value = Any  # the engine's Value; provider code looks inside by isinstance all the time
Properties = dict[str, Value]


def decode(message: struct_pb2.Struct | None) -> Properties:
    """The properties in a struct; whole numbers become `int`, because every number travels as a double."""
    return {} if message is None else cast("Properties", _without_references(unmarshal(message)))


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


def plain_properties(value: Mapping[str, Value]) -> Properties:
    """A copy without the marks of secrets."""
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
    return Secret(reveal(outputs))
