"""Tenancies that the API makes for tenants who have none: all alike, of a template, and only so many.

The API alone creates them, and an admission policy compares each with the template, so that whoever takes the
API's account gives nobody more. Their number is counted by the API, and by the controllers, which isolate no
more of them than the template says, the oldest first.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from gpuclusters.core.custom_resource import GROUP, Part
from gpuclusters.core.naming import is_dns_label, is_reserved_namespace
from gpuclusters.tenancy.model import TenancySpec, tenancy_object

LABEL = f"{GROUP}/on-demand"
"""On a Tenancy that was made on demand."""
_TRUE = "true"
PLACEHOLDER = "on-demand"
"""The tenant of the template, which is nobody's."""


class OnDemand(Part):
    most: Annotated[int, Field(ge=1)]
    """How many of them there are at most."""
    prefix: Annotated[str, Field(min_length=1)]
    """Before the tenant's name in that of its namespace."""
    template: TenancySpec

    def tenancy(self, tenant: str) -> dict[str, Any] | None:
        """The Tenancy of a tenant; None if no namespace may have its name."""
        namespace = f"{self.prefix}{tenant}"
        if not is_dns_label(namespace) or is_reserved_namespace(namespace):
            return None
        return self._made(tenant, namespace)

    def rule(self) -> str:
        """In CEL: the object is what `tenancy` makes for its name."""
        name, namespace = "object.metadata.name", f"{_cel(self.prefix)} + object.metadata.name"
        made = self._made(PLACEHOLDER, PLACEHOLDER)
        spec = {key: _cel(value) for key, value in made["spec"].items()}
        spec |= {"tenant": name, "namespace": namespace}
        metadata = made["metadata"]
        return " && ".join(
            (
                f"dyn(object.spec) == {_map(spec)}",
                f"dyn(object.metadata.labels) == {_cel(metadata['labels'])}",
                f"dyn(object.metadata.finalizers) == {_cel(metadata['finalizers'])}",
                "!has(object.metadata.ownerReferences)",
            )
        )

    def _made(self, tenant: str, namespace: str) -> dict[str, Any]:
        own = {"tenant": tenant, "namespace": namespace}
        made = tenancy_object(self.template.model_copy(update=own))
        made["metadata"]["labels"][LABEL] = _TRUE
        return made


def on_demand(tenancies: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that were made on demand, the oldest first."""
    found = [one for one in tenancies if is_on_demand(one)]
    return sorted(
        found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["uid"])
    )


def is_on_demand(tenancy: Mapping[str, Any]) -> bool:
    return (tenancy["metadata"].get("labels") or {}).get(LABEL) == _TRUE


def _cel(value: Any) -> str:
    """A value as CEL writes it."""
    if isinstance(value, Mapping):
        return _map({key: _cel(one) for key, one in value.items()})
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({_cel(one)})" for one in value) + "]"
    return json.dumps(value)


def _map(parts: Mapping[str, str]) -> str:
    """Of expressions; those of several types are of none, which CEL wants of a map."""
    return "{" + ", ".join(f"{json.dumps(key)}: dyn({one})" for key, one in parts.items()) + "}"
