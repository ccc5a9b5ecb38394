"""Specifications as JSON, by which a server of the lab is told what to do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

Spec = TypeVar("Spec")


def document(spec: Any) -> dict[str, Any]:
    """A dataclass as JSON has it, with absolute paths: a server has another current folder."""
    # Quantities come as a view of a mapping that nobody can change.
    made = TypeAdapter(type(spec)).dump_python(spec, fallback=dict, warnings=False)
    return dict(to_jsonable_python(_absolute(made), fallback=dict))


def _absolute(value: Any) -> Any:
    match value:
        case Path():
            return value.resolve()
        case Mapping():
            return {key: _absolute(one) for key, one in value.items()}
        case tuple():
            return tuple(map(_absolute, value))
    return value


def read(kind: type[Spec], written: Any) -> Spec:
    """From what `document` gave; raises `ValidationError` for what it never gives."""
    found: Spec = TypeAdapter(kind).validate_python(written)
    return found
