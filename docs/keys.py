"""The JSON Schema of stack files and the tables of keys in these pages: `python -m docs.keys`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.blocks import fill
from gpuclusters.config import stack
from gpuclusters.config.cluster import KEY as LAB
from gpuclusters.config.cluster import SECRET_KEYS, LabConfig
from gpuclusters.config.fault import show
from gpuclusters.config.stack import NAMESPACE, SECTIONS, ClusterType
from gpuclusters.config.structure import discriminator, sections, tags
from gpuclusters.core.section import meanings

_DOCS = Path(__file__).parent
PAGES = {
    ClusterType.CAAS: _DOCS / "configuration.md",
    ClusterType.RKE2: _DOCS / "rke2-configuration.md",
    ClusterType.USERNETES: _DOCS / "usernetes-configuration.md",
    ClusterType.GKE: _DOCS / "gke-configuration.md",
}

_PLAIN = {
    str: "text",
    int: "whole number",
    bool: "true or false",
    IPv4Network: "IPv4 range",
    IPv6Network: "IPv6 range",
    IPv4Address: "IPv4 address",
    Any: "anything",
}


def _members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)


def _bare(annotation: Any) -> Any:
    """A type without what is annotated to it."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """A section's model and all below it, in the order in which they appear."""
    found = [root]
    for info in root.model_fields.values():
        for below in sections(info.annotation):
            found += [model for model in models(below) if model not in found]
    return found


def _kind(annotation: Any) -> str:
    one = _bare(annotation)
    if get_origin(one) in (Union, UnionType):
        kinds = (_kind(member) for member in get_args(one) if member is not NoneType)
        return " or ".join(dict.fromkeys(kinds))
    if get_origin(one) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(one))
    arguments = get_args(one)
    if get_origin(one) is tuple:
        return f"list of {_kind(arguments[0])}"
    if arguments:
        return f"mapping of {_kind(arguments[1])}"
    if issubclass(one, BaseModel):
        return "mapping"
    if issubclass(one, Enum):
        return ", ".join(f"`{member.value}`" for member in one)
    return _PLAIN[one]


def _range(info: FieldInfo) -> str:
    least = [mark.ge for mark in info.metadata if isinstance(mark, Ge)]
    most = [mark.le for mark in info.metadata if isinstance(mark, Le)]
    return f", {least[0]} to {most[0]}" if least and most else ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple):
        value = [one.value if isinstance(one, Enum) else one for one in value]
    if isinstance(value, IPv4Network | IPv6Network):
        value = str(value)
    return "empty" if value in ([], {}, "") else f"`{show(value)}`"


def _paths(root: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every section with the path under which it stands."""
    yield path, root
    for name, info in root.model_fields.items():
        below = list(sections(info.annotation))
        listed = get_origin(_bare(_members(_bare(info.annotation))[0])) is tuple
        for model in below:
            suffix = "[]" if listed else ""
            which = f" ({discriminator(model)}: {tags(model)[0]})" if tags(model) else ""
            yield from _paths(model, f"{path}.{info.alias or name}{suffix}{which}")


def _variant(root: type[BaseModel]) -> str:
    """Of a section that has several, what makes this one: `(kubernetes.source: existing)`."""
    info = root.model_fields.get("kubernetes")
    below = list(sections(info.annotation)) if info is not None else []
    several = len(below) == 1 and info is not None and info.is_required()
    return f" (kubernetes.source: {tags(below[0])[0]})" if several else ""


def _meaning(model: type[BaseModel], name: str) -> str:
    return " ".join(meanings(model).get(name, "").split())


def _row(model: type[BaseModel], name: str) -> str:
    info, text = model.model_fields[name], _meaning(model, name).replace("|", "\\|")
    kind = f"{_kind(info.annotation)}{_range(info)}"
    return f"| `{info.alias or name}` | {kind} | {_default(info)} | {text} |"


def keys(kind: ClusterType) -> str:
    """Every key of a cluster type, one table for each section; equal sections share one."""
    places: dict[type[BaseModel], list[str]] = {}
    for root in SECTIONS[kind].models:
        for path, model in _paths(root, f"{kind.value}{_variant(root)}"):
            if path not in places.setdefault(model, []):
                places[model].append(path)
    lines: list[str] = []
    for model, paths in places.items():
        summary = " ".join((model.__doc__ or "").split())
        lines += [f"### {', '.join(f'`{path}`' for path in paths)}", "", summary, ""]
        lines += ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
        lines += [_row(model, name) for name in model.model_fields]
        lines += [""]
    return "\n".join(lines)


SCHEMA_FILE = Path(stack.__file__).with_name("schema.json")


def schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    keys: dict[str, Any] = {
        f"{NAMESPACE}:cluster-type": {
            "description": "What kind of cluster the stack declares.",
            "enum": [kind.value for kind in SECTIONS],
        }
    }
    sections: dict[str, tuple[type[BaseModel], ...]] = {
        **{kind.value: section.models for kind, section in SECTIONS.items()},
        LAB: (LabConfig,),
    }
    for key, variants in sections.items():
        for section in variants:
            one = section.model_json_schema(ref_template="#/$defs/{model}")
            for name, definition in {**one.pop("$defs", {}), section.__name__: one}.items():
                if definitions.setdefault(name, definition) != definition:
                    raise ValueError(f"two sections have a {name}, and they differ: rename one")
        refs = [{"$ref": f"#/$defs/{section.__name__}"} for section in variants]
        keys[f"{NAMESPACE}:{key}"] = refs[0] if len(refs) == 1 else {"anyOf": refs}
    for section in chain.from_iterable(sections.values()):
        for model in models(section):
            for name, info in model.model_fields.items():
                entry = definitions[model.__name__]["properties"][info.alias or name]
                entry["description"] = _meaning(model, name)
    for key in SECRET_KEYS:
        keys[f"{NAMESPACE}:{key}"] = {
            "description": f"A secret: pulumi config set --secret {key}",
            "type": "object",
            "properties": {"secure": {"type": "string"}},
            "required": ["secure"],
            "additionalProperties": False,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack of gpu-clusters",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": keys,
                "required": [f"{NAMESPACE}:cluster-type"],
            }
        },
        "required": ["config"],
        "$defs": definitions,
    }


def render() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    SCHEMA_FILE.write_text(render(), encoding="utf-8")
    for kind, page in PAGES.items():
        page.write_text(fill(page, "keys", keys(kind)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
