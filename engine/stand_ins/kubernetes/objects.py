"""Kubernetes objects as plain maps: identity, shape and the forms they have in Pulumi's state.

Everything here is pure. An "object" is what the API server speaks; "properties" are what the engine
speaks, with secret marks and a few keys spelled differently.
"""

import base64
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import yaml

from engine.stand_ins.values import Properties, Value, mark_secrets, plain_properties
from engine.values import Secret

Object = dict[str, Any]

INPUTS: Final = "__inputs"
FIELD_MANAGER: Final = "__fieldManager"
INITIAL_API_VERSION: Final = "__initialApiVersion"

AUTONAMED: Final = "pulumi.com/autonamed"

# The Python SDK cannot spell dashes in keywords; CustomResourceDefinition schemas need them.
_DASHED: Final = {
    f"x_kubernetes_{name}": f"x-kubernetes-{name.replace('_', '-')}"
    for name in (
        "embedded_resource",
        "int_or_string",
        "list_map_keys",
        "list_type",
        "map_type",
        "preserve_unknown_fields",
        "validations",
    )
}
_UNDERSCORED: Final = {dashed: under for under, dashed in _DASHED.items()}

# Set by the server alone; an input that carries them came from a copied manifest.
_SYSTEM_METADATA: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)


@cache
def known_kinds() -> Mapping[str, Mapping[str, Any]]:
    """What is known of Kubernetes' own kinds, by group."""
    table = Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, Mapping[str, Any]]", yaml.safe_load(table))


@dataclass(frozen=True)
class GroupVersionKind:
    """What an object is; `api_version` is `v1` or `group/version`."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


def kind_of_token(token: str) -> GroupVersionKind:
    """`kubernetes:core/v1:Namespace` → `v1`, `Namespace`."""
    _, module, kind = token.split(":", 2)
    return GroupVersionKind(module.removeprefix("core/"), kind)


def kind_of(obj: Mapping[str, Any]) -> GroupVersionKind:
    api_version = str(obj.get("apiVersion", ""))
    return GroupVersionKind(api_version.removeprefix("core/"), str(obj.get("kind", "")))


def is_patch(token: str, obj: Mapping[str, Any]) -> bool:
    """Whether a resource, such as a `NamespacePatch`, only sets fields of an object that others own."""
    return token.rpartition(":")[2] == f"{obj.get('kind')}Patch"


def metadata_of(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an object; empty where there is none, or where it is not known yet."""
    metadata = obj.get("metadata")
    return cast("dict[str, Any]", metadata) if isinstance(metadata, Mapping) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    """`metadata.name`; empty if absent or unknown."""
    return _text(metadata_of(obj).get("name"))


def namespace_of(obj: Mapping[str, Any]) -> str:
    """`metadata.namespace`; empty if absent or unknown."""
    return _text(metadata_of(obj).get("namespace"))


def annotation(obj: Mapping[str, Any], key: str) -> str:
    """An annotation's value; empty if absent or unknown."""
    annotations = metadata_of(obj).get("annotations")
    return _text(annotations.get(key)) if isinstance(annotations, Mapping) else ""


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def identifier(obj: Mapping[str, Any]) -> str:
    """The id in Pulumi's state: `namespace/name`, or `name` for what has no namespace."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def parse_identifier(id: str) -> tuple[str, str]:
    """Namespace (may be empty) and name in an id."""
    namespace, _, name = id.rpartition("/")
    return namespace, name


def title(obj: Mapping[str, Any]) -> str:
    """How messages call an object: `ConfigMap default/settings`."""
    return f"{obj.get('kind', 'object')} {identifier(obj)}"


def to_object(properties: Mapping[str, Value]) -> Object:
    """Properties as an object: no secret marks, no bookkeeping, keys as the server spells them."""
    bare = {key: value for key, value in properties.items() if not key.startswith("__")}
    obj = cast("Object", _renamed(plain_properties(bare), _DASHED))
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        for key in _SYSTEM_METADATA:
            metadata.pop(key, None)
    return obj


def live_object(outputs: Mapping[str, Value]) -> Object:
    """The object recorded in outputs, system metadata included."""
    bare = {key: value for key, value in outputs.items() if not key.startswith("__")}
    return cast("Object", _renamed(plain_properties(bare), _DASHED))


def recorded_inputs(outputs: Mapping[str, Value]) -> Object:
    """The inputs that outputs were made from."""
    inputs = plain_properties(outputs).get(INPUTS)
    return to_object(inputs) if isinstance(inputs, Mapping) else {}


def checkpoint(
    live: Object, inputs: Object, marks: Mapping[str, Value], *, manager: str, api_version: str
) -> Properties:
    """Outputs for the state, in the real provider's form, so that it can take over.

    Args:
        live: the object as the server has it.
        inputs: what was asked for.
        marks: inputs with secret marks; what is secret there is secret in the outputs.
        manager: field manager that owns what was applied.
        api_version: API version at creation.
    """
    live = copy.deepcopy(live)
    metadata_of(live).pop("managedFields", None)
    outputs = with_secrets(live, marks)
    outputs[INPUTS] = with_secrets(inputs, marks)
    outputs[FIELD_MANAGER] = manager
    outputs[INITIAL_API_VERSION] = api_version
    return outputs


def with_secrets(obj: Object, marks: Mapping[str, Value]) -> Properties:
    """An object as properties; a Secret's data is always secret, whatever the program said."""
    properties = cast("Properties", mark_secrets(_renamed(obj, _UNDERSCORED), dict(marks)))
    if obj.get("kind") == "Secret":
        for key in ("data", "stringData"):
            if key in properties and not isinstance(properties[key], Secret):
                properties[key] = Secret(plain_properties({key: properties[key]})[key])
    return properties


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value


def with_encoded_data(obj: Object) -> Object:
    """A Secret with its `stringData` folded into `data`, as the server does; other objects as they are."""
    if obj.get("kind") != "Secret" or not isinstance(obj.get("stringData"), Mapping):
        return obj
    folded = {key: value for key, value in obj.items() if key != "stringData"}
    encoded = {
        key: base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
        for key, value in obj["stringData"].items()
    }
    folded["data"] = {**(obj.get("data") or {}), **encoded}
    return folded


def prune(live: Any, shape: Any) -> Any:
    """The part of `live` that `shape` speaks about: what the server added on its own is left out.

    List items that have names are paired by name, others by position. Lists of plain values are taken
    whole, because an item too many is a difference.
    """
    if isinstance(live, Mapping) and isinstance(shape, Mapping):
        return {key: prune(value, shape[key]) for key, value in live.items() if key in shape}
    if isinstance(live, list) and isinstance(shape, list):
        return _prune_list(live, shape)
    return live


def _prune_list(live: list[Any], shape: list[Any]) -> list[Any]:
    if not all(isinstance(item, Mapping) for item in (*live, *shape)):
        return live
    if _named(live) and _named(shape):
        by_name = {item["name"]: item for item in live}
        return [prune(by_name[item["name"]], item) for item in shape if item["name"] in by_name]
    return [prune(item, wanted) for item, wanted in zip(live, shape, strict=False)]


def _named(items: Sequence[Any]) -> bool:
    names = [item.get("name") for item in items]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
