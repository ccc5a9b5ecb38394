"""What has to hold between the resources of a state before it may be worked with.

The rules are those of Pulumi's `Snapshot.VerifyIntegrity`: it refuses such states too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TEXTS = (
    "urn", "type", "id", "parent", "provider", "importID", "deletedWith", "created", "modified",
    "sourcePosition",
)  # fmt: skip
_FLAGS = (
    "custom",
    "delete",
    "protect",
    "taint",
    "external",
    "pendingReplacement",
    "retainOnDelete",
)
_LISTS = (
    "dependencies", "initErrors", "additionalSecretOutputs", "aliases", "ignoreChanges",
    "replaceOnChanges", "hideDiff", "replaceWith",
)  # fmt: skip
_OBJECTS = ("inputs", "outputs", "propertyDependencies", "customTimeouts")


def fault(deployment: Mapping[str, Any]) -> str:
    """What is wrong with a deployment: the first thing found, empty for nothing."""
    resources = deployment.get("resources") or ()
    found = next(_wrong_types(resources), "")
    for operation in deployment.get("pending_operations") or ():
        if not isinstance(operation.get("type"), str):
            found = found or "a pending operation has no type"
        if not isinstance(operation.get("resource"), dict):
            return found or "a pending operation has no resource"
        found = found or next(_wrong_types([operation["resource"]]), "")
    return found or next(_wrong_references(resources), "")


def _wrong_types(resources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, resource in enumerate(resources):
        name = resource.get("urn") or f"number {number}"
        for field in ("urn", "type"):
            if not resource.get(field):
                yield f"resource {name} has no {field}"
        for fields, kind, what in (
            (_TEXTS, str, "a text"),
            (_FLAGS, bool, "true or false"),
            (_LISTS, list, "a list"),
            (_OBJECTS, dict, "an object"),
        ):
            for field in fields:
                if not isinstance(resource.get(field), (kind, type(None))):
                    yield f"resource {name} has a '{field}' that is not {what}"
        for field in _LISTS:
            if not all(isinstance(item, str) for item in resource.get(field) or ()):
                yield f"resource {name} has a '{field}' that is not a list of texts"
        for urns in (resource.get("propertyDependencies") or {}).values():
            if not isinstance(urns, (list, type(None))):
                yield f"resource {name} has a 'propertyDependencies' with something else than lists"
        if resource.get("id") and not resource.get("custom"):
            yield f"resource {name} has an id but is not custom"


def _wrong_references(resources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    everyone = {resource["urn"] for resource in resources}
    references = {f"{r['urn']}::{r.get('id', '')}" for r in resources}
    before: set[str] = set()
    current: set[str] = set()
    for resource in resources:
        urn, leaving = resource["urn"], bool(resource.get("delete"))
        if urn in current and not leaving:
            yield f"resource {urn} is there twice, and neither is marked to be deleted"
        for role, other in _needs(resource):
            if other not in everyone:
                yield f"the {role} {other} of resource {urn} is not there"
            elif other not in before and not leaving:
                yield f"resource {urn} stands before its {role} {other}"
        provider = resource.get("provider")
        if provider and provider not in references:
            yield f"the provider {provider} of resource {urn} is not there"
        before.add(urn)
        if not leaving:
            current.add(urn)


def _needs(resource: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if parent := resource.get("parent"):
        yield "parent", parent
    for other in resource.get("dependencies") or ():
        yield "dependency", other
    for urns in (resource.get("propertyDependencies") or {}).values():
        for other in urns or ():
            yield "dependency", other
    if other := resource.get("deletedWith"):
        yield "'deletedWith'", other
    if provider := resource.get("provider"):
        yield "provider", provider.rpartition("::")[0]
