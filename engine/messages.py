"""Texts that Pulumi's engine prints in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.answers import Failure
from engine.state import ResourceState
from engine.values import Reference, Secret, Unknown, Value


def in_go(value: Value) -> str:
    """A property value as Pulumi's messages show it: `{text}`, `map[key:{text}]`.

    Secrets are not shown, which Pulumi forgets here.
    """
    if isinstance(value, Secret):
        return "{[secret]}"
    return f"{{{_inner(value)}}}"


def _inner(value: Value) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{in_go(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(in_go(v) for v in value) + "]"
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Reference):
        return value.urn
    return str(value)


def refusals(state: ResourceState, failures: Iterable[Failure]) -> Iterator[str]:
    """What the user is told about inputs that the provider's check refuses."""
    told = f"{state.type} resource '{state.name}'"
    for failure in failures:
        if failure.property:
            value = in_go(state.inputs.get(failure.property))
            yield (
                f"{told}: property {failure.property} value {value} has a problem: {failure.reason}"
            )
        else:
            yield f"{told} has a problem: {failure.reason}"
