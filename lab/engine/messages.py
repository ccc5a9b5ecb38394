"""Texts that Pulumi's engine prints in its own way."""

from __future__ import annotations

from lab.engine.values import Asset, Reference, Secret, Unknown, Value


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
    if isinstance(value, Asset):
        return "asset"
    return str(value)
