"""The Tenancy object: what isolates one tenant, as a cluster-scoped custom resource.

The model is the one source: the CustomResourceDefinition is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuclusters.domain.custom_resource import (
    GROUP,
    VERSION,
    Condition,
    Name,
    ObjectName,
    Part,
    definition,
    structural,
)
from gpuclusters.domain.ports import ObjectKind

TENANCY = ObjectKind(GROUP, VERSION, "tenancies", "Tenancy", namespaced=False)

PodSecurityLevel = Literal["restricted", "baseline"]


class PodSecurity(Part):
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


class Quota(Part):
    """The ResourceQuota that must be enforced in the namespace."""

    name: ObjectName = "tenant"
    hard: Annotated[
        dict[str, Annotated[str, Field(max_length=32)]], Field(min_length=1, max_length=64)
    ]


class LimitRange(Part):
    """The LimitRange that must exist: without defaults a quota refuses pods that state nothing."""

    name: ObjectName = "tenant"


class TenancySpec(Part):
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


class TenancyStatus(Part):
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
    spec = structural(TenancySpec)
    spec["x-kubernetes-validations"] = _SPEC_RULES
    for name in ("tenant", "namespace"):
        spec["properties"][name]["x-kubernetes-validations"] = [_FIXED]
    return definition(
        TENANCY,
        short_names=["ten"],
        description="What isolates one tenant, and whether it is enforced.",
        spec=spec,
        status=structural(TenancyStatus),
        columns=[
            ("Tenant", "string", ".spec.tenant"),
            ("Namespace", "string", ".spec.namespace"),
            ("GPUs", "integer", ".spec.gpus"),
            ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
            ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
        rules=_OBJECT_RULES,
    )
