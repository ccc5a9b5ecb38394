"""Every key of a stack file with its values, default and meaning: what its JSON Schema says, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuclusters.config.fault import show

SCHEMA_FILE = Path(__file__).with_name("schema.json")
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "null": "",
    "ipv4network": "IPv4 range",
    "ipv6network": "IPv6 range",
    "ipv4": "IPv4 address",
    "": "anything",
}


NO_DEFAULT = ("required", "not set", "see below", "empty")


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    values: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping of known keys: a section of a stack file, or one below it."""

    paths: tuple[str, ...]
    """Where it may stand: `rke2.pools[].gpu`, `caas.hosts (source: existing)`."""
    meaning: str
    keys: tuple[Key, ...]


@cache
def _schema() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return found


def _sections() -> Mapping[str, Mapping[str, Any]]:
    stated = _schema()["properties"]["config"]["properties"]
    return {key.rpartition(":")[2]: value for key, value in stated.items()}


def meaning(model: str, key: str) -> str:
    """What a key of a model is for; empty if the schema has none such."""
    one = _schema()["$defs"].get(model, {}).get("properties", {})
    return str(one.get(key, {}).get("description", ""))


def mappings(section: str) -> list[Mapped]:
    """A section of stack files and all below it, in their order; equal ones once."""
    places: dict[str, list[str]] = {}
    for path, name in _below(_sections()[section], section):
        if path not in places.setdefault(name, []):
            places[name].append(path)
    return [_mapped(name, paths) for name, paths in places.items()]


def paths() -> Iterator[str]:
    """Every key of every section, as it is asked for: `rke2.operator.version`."""
    for section in _sections():
        for one in mappings(section):
            for place in one.paths:
                yield from (f"{_plain(place)}.{key.name}" for key in one.keys)


def _plain(path: str) -> str:
    return re.sub(r"\[\]| \([^)]*\)", "", path)


def about(stated: str) -> Iterator[tuple[tuple[str, ...], Key | Mapped]]:
    """What stands under a path: the key, in each section that has it, and the keys below it."""
    section = stated.partition(".")[0]
    above, _, last = stated.rpartition(".")
    for one in mappings(section) if section in _sections() else ():
        if places := tuple(f"{path}.{last}" for path in one.paths if _plain(path) == above):
            yield from ((places, key) for key in one.keys if key.name == last)
        if places := tuple(path for path in one.paths if _plain(path) == stated):
            yield places, one


def _below(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every mapping of known keys in a value, with the path under which it stands."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if properties := _schema()["$defs"][name].get("properties"):
            yield path, name
            for key, value in properties.items():
                yield from _below(value, f"{path}.{key}")
    elif told_by := node.get("discriminator"):
        for tag, reference in told_by["mapping"].items():
            place = f"{path} ({told_by['propertyName']}: {tag})"
            yield from _below({"$ref": reference}, place)
    for one in node.get("anyOf", ()):
        yield from _below(one, path)
    for inside in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inside, dict):
            yield from _below(inside, f"{path}[]")


def _mapped(name: str, paths: list[str]) -> Mapped:
    one = _schema()["$defs"][name]
    keys = tuple(_key(key, one) for key in one["properties"])
    return Mapped(tuple(paths), " ".join(one.get("description", "").split()), keys)


def _key(name: str, section: Mapping[str, Any]) -> Key:
    node = section["properties"][name]
    default = node.get("default")
    if name in section.get("required", ()):
        told = "required"
    elif default is None:
        told = "not set" if "default" in node or not any(_below(node, "")) else "see below"
    elif default in ([], {}, ""):
        told = "empty"
    else:
        told = show(default)
    return Key(name, _values(node), told, node.get("description", ""))


def _values(node: Mapping[str, Any]) -> str:
    """What may be written, in words."""
    if members := node.get("anyOf") or node.get("oneOf"):
        return " or ".join(dict.fromkeys(filter(None, map(_values, members))))
    if "$ref" in node:
        return _values(_schema()["$defs"][node["$ref"].rpartition("/")[2]])
    if allowed := node.get("enum", [node["const"]] if "const" in node else []):
        return ", ".join(map(str, allowed))
    if "items" in node:
        return f"list of {_values(node['items'])}"
    inside = node.get("additionalProperties")
    if isinstance(inside, dict) and inside:
        return f"mapping of {_values(inside)}"
    kind = _KINDS[node.get("format", node.get("type", ""))]
    least, most = node.get("minimum"), node.get("maximum")
    return f"{kind}, {least} to {most}" if least is not None and most is not None else kind
