"""Our own kinds in the Kubernetes API: their group, and the definition generated from a model."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpuclusters.core import scripts
from gpuclusters.core.model import Strict
from gpuclusters.core.ports import ObjectKind

GROUP = "gpu-clusters.dev"
VERSION = "v1alpha1"

_DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(min_length=1, max_length=63, pattern=_DNS_LABEL)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC."""


class Part(BaseModel):
    """A part of a custom resource: camelCase in the object, closed to unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ClusterInputs(Strict):
    """What every resource in a cluster is told."""

    called: ClassVar[str]
    """The second part of its id, with its inputs in braces."""
    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)

    @property
    def natural_id(self) -> str:
        return f"{self.cluster}/{self.called.format(self)}"


class Condition(Part):
    """A condition as everywhere in Kubernetes."""

    type: Annotated[str, Field(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=32768)] = ""
    observed_generation: int | None = None
    last_transition_time: Timestamp | None = None


def definition(
    kind: ObjectKind, described: Mapping[str, Any], *, spec: type[Part], status: type[Part]
) -> dict[str, Any]:
    """The CustomResourceDefinition of one cluster-scoped kind with a status subresource.

    `described`: what `kubectl get` prints, names, and CEL validations by what they are about (`spec.egress`).
    """
    schema: dict[str, Any] = {
        "type": "object",
        "description": described["description"],
        "required": ["spec"],
        "properties": {"spec": _structural(spec), "status": _structural(status)},
    }
    # One writer at a time has the whole list: whoever writes a status names the version it replaces.
    # A map by type, of which several managers may each have a part, costs the server a third more
    # for every write of the status, because it keeps for each entry whose it is.
    conditions = schema["properties"]["status"]["properties"]["conditions"]
    conditions["x-kubernetes-list-type"] = "atomic"
    for path, rules in described["rules"].items():
        part = schema
        for name in () if path == "object" else path.split("."):
            part = part["properties"][name]
        part["x-kubernetes-validations"] = rules
    words = {
        **asdict(kind),
        "singular": kind.kind.lower(),
        "short_names": described["short-names"],
        "schema": schema,
        "columns": [
            dict(zip(("name", "type", "jsonPath"), column, strict=True))
            for column in described["columns"]
        ],
    }
    return dict(scripts.manifest("core/definition.yaml", words))


def _structural(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema in the form that Kubernetes calls structural."""
    schema = model.model_json_schema(by_alias=True)
    return dict(_inline(schema, schema.get("$defs", {})))


# `additionalProperties: false` beside `properties` is not structural (unknown fields are pruned
# anyway); titles say nothing that names do not.
_DROPPED = {"$defs", "title"}


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _inline({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    if "anyOf" in node:  # only ever "X or null", which a missing field says too
        (kept,) = (option for option in node["anyOf"] if option.get("type") != "null")
        rest = {k: v for k, v in node.items() if k not in ("anyOf", "default")}
        return _inline({**kept, **rest}, definitions)
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: _inline(sub, definitions) for name, sub in value.items()}
        elif key == "additionalProperties" and value is False:
            continue
        elif key not in _DROPPED:
            result[key] = _inline(value, definitions)
    return result
