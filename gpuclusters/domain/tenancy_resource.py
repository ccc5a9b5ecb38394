"""The Tenancy object: what isolates one tenant, as a cluster-scoped custom resource.

The model is the one source: the CustomResourceDefinition is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpuclusters.domain.ports import ObjectKind

GROUP = "gpu-clusters.dev"
VERSION = "v1alpha1"
TENANCY = ObjectKind(GROUP, VERSION, "tenancies", "Tenancy", namespaced=False)
GPU_LEASE = ObjectKind(GROUP, VERSION, "gpuleases", "GPULease", namespaced=False)

_DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(min_length=1, max_length=63, pattern=_DNS_LABEL)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
PodSecurityLevel = Literal["restricted", "baseline"]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class PodSecurity(_Part):
    """Pod Security Admission of the tenant's namespace; `privileged` would be no isolation."""

    enforce: PodSecurityLevel = "restricted"
    audit: PodSecurityLevel = "restricted"
    warn: PodSecurityLevel = "restricted"
    version: Annotated[str, Field(max_length=16, pattern=r"^(latest|v1\.[0-9]+)$")] = "latest"

    def labels(self) -> dict[str, str]:
        """The labels that the namespace must carry."""
        prefix = "pod-security.kubernetes.io"
        levels = {"enforce": self.enforce, "audit": self.audit, "warn": self.warn}
        labels = {f"{prefix}/{mode}": level for mode, level in levels.items()}
        return labels | {f"{prefix}/{mode}-version": self.version for mode in levels}


class Quota(_Part):
    """The ResourceQuota that must be enforced in the namespace."""

    name: ObjectName = "tenant"
    hard: Annotated[
        dict[str, Annotated[str, Field(max_length=32)]], Field(min_length=1, max_length=64)
    ]


class LimitRange(_Part):
    """The LimitRange that must exist: without defaults a quota refuses pods that state nothing."""

    name: ObjectName = "tenant"


class TenancySpec(_Part):
    """What isolates the tenant."""

    tenant: Name
    namespace: Name
    gpus: Annotated[int, Field(ge=0, le=4096)] = 0
    gpu_resource: Annotated[str, Field(max_length=253)] = "nvidia.com/pgpu"
    pod_security: PodSecurity = PodSecurity()
    quota: Quota
    limit_range: LimitRange = LimitRange()
    network_policies: Annotated[tuple[ObjectName, ...], Field(max_length=64)] = ()
    runtime_classes: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    admission_policy: ObjectName | None = None

    def document(self) -> dict[str, Any]:
        """As it stands in the object."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(_Part):
    """A condition as everywhere in Kubernetes."""

    type: Annotated[str, Field(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=32768)] = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class TenancyStatus(_Part):
    """What has been proven about the tenant's isolation."""

    observed_generation: int | None = None
    proofs: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=128)] = ()
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()


def tenancy_object(spec: TenancySpec) -> dict[str, Any]:
    """The object for server-side apply; it is named after its tenant."""
    return {
        "apiVersion": TENANCY.api_version,
        "kind": TENANCY.kind,
        "metadata": {
            "name": spec.tenant,
            "labels": {"app.kubernetes.io/managed-by": "gpu-clusters"},
        },
        "spec": spec.document(),
    }


_SPEC_RULES = [
    {
        "rule": "('requests.' + self.gpuResource) in self.quota.hard",
        "message": "quota.hard must count the GPUs as requests.<gpuResource>; "
        "Kubernetes enforces extended resources under no other key",
    },
]
# Whose it is and where its pods run: changed, the isolation of the old would be nobody's.
_FIXED = {
    "rule": "self == oldSelf",
    "message": "cannot be changed; delete the Tenancy and make another",
}
_OBJECT_RULES = [
    {
        "rule": "self.metadata.name == self.spec.tenant",
        "message": "a Tenancy is named after its tenant",
    }
]


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of Tenancy."""
    spec = _structural(TenancySpec)
    spec["x-kubernetes-validations"] = _SPEC_RULES
    for name in ("tenant", "namespace"):
        spec["properties"][name]["x-kubernetes-validations"] = [_FIXED]
    status = _structural(TenancyStatus)
    status["properties"]["conditions"] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    columns = [
        ("Tenant", "string", ".spec.tenant"),
        ("Namespace", "string", ".spec.namespace"),
        ("GPUs", "integer", ".spec.gpus"),
        ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{TENANCY.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": TENANCY.kind,
                "listKind": "TenancyList",
                "plural": TENANCY.plural,
                "singular": "tenancy",
                "shortNames": ["ten"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path}
                        for name, kind, path in columns
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": "What isolates one tenant, and whether it is enforced.",
                            "required": ["spec"],
                            "properties": {
                                "spec": spec,
                                "status": status,
                            },
                            "x-kubernetes-validations": _OBJECT_RULES,
                        }
                    },
                }
            ],
        },
    }


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
