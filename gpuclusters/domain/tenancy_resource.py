"""The Tenancy object: what isolates one tenant, as a cluster-scoped custom resource.

The model is the one source: the CustomResourceDefinition is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuclusters.domain import image
from gpuclusters.domain.custom_resource import (
    GROUP,
    VERSION,
    Condition,
    Name,
    ObjectName,
    Part,
    Rule,
    definition,
    structural,
)
from gpuclusters.domain.ports import ObjectKind

TENANCY = ObjectKind(GROUP, VERSION, "tenancies", "Tenancy", namespaced=False)

FINALIZER = f"{GROUP}/tenancy"
"""Keeps a Tenancy until its namespace is gone."""

PodSecurityLevel = Literal["restricted", "baseline"]
SIZES = (1, 2, 4, 8, 16, 32, 64)
"""How many GPUs the partitions of any baseboard have."""

Quantity = Annotated[str, Field(max_length=32)]
Amounts = Annotated[dict[str, Quantity], Field(max_length=64)]
Cidr = Annotated[str, Field(max_length=43)]


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
    """What the tenant may hold at once."""

    name: ObjectName = "tenant"
    hard: Annotated[dict[str, Quantity], Field(min_length=1, max_length=64)]


class Limit(Part):
    """Limits of one container or pod, as in a LimitRange."""

    type: Literal["Container", "Pod"]
    default: Amounts | None = None
    default_request: Amounts | None = None
    max: Amounts | None = None
    min: Amounts | None = None


class Egress(Part):
    """Where the tenant's pods may connect to, beside each other and DNS, which always work."""

    internet: bool = False
    """Every public address; never private ranges, metadata services or the cluster's machines."""
    fqdns: Annotated[
        tuple[Annotated[str, Field(max_length=255, pattern=r"^[-a-zA-Z0-9_.*]+$")], ...],
        Field(max_length=256),
    ] = ()
    """Host names, for HTTPS; `*` stands for characters of one part of a name, `**.` in front for one or more
    parts, from Cilium 1.19 on."""
    nfs_cidrs: Annotated[tuple[Cidr, ...], Field(max_length=64)] = ()
    """File servers that its VMs mount."""
    api_server: bool = False
    """The Kubernetes API."""


class TenancySpec(Part):
    """Who the tenant is, what it may hold and reach. Everything that isolates it is made from this."""

    tenant: Name
    namespace: Name
    gpus: Annotated[int, Field(ge=0, le=4096)] = 0
    gpu_resource: Annotated[str, Field(max_length=253)] = "nvidia.com/pgpu"
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(max_length=7)] = ()
    """How many GPUs one container may ask for."""
    pod_security: PodSecurity = PodSecurity()
    quota: Quota
    limits: Annotated[tuple[Limit, ...], Field(max_length=4)] = ()
    """Without defaults a quota refuses pods that state nothing."""
    egress: Egress = Egress()
    runtime_classes: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    images: Annotated[
        tuple[Annotated[str, Field(max_length=255, pattern=image.SOURCE)], ...],
        Field(max_length=64),
    ] = ()
    """Registries, and paths at registries, that its images come from; empty for any public registry."""
    pull_secret: bool = False
    """Whether its pods pull with the Secret `registry-credentials` of its namespace."""


class TenancyStatus(Part):
    """What the controller has found enforced, and what it waits for."""

    observed_generation: int | None = None
    namespace_uid: Annotated[str, Field(max_length=64)] | None = None
    """The namespace that was made for the tenant; any other of its name is foreign."""
    awaited_leases: Annotated[tuple[ObjectName, ...], Field(max_length=4096)] = ()
    """GPUs that the deletion waits for: the tenant has them, or had them last and they are not scrubbed."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()


def tenancy_object(spec: TenancySpec) -> dict[str, Any]:
    """The object for server-side apply; it is named after its tenant."""
    return {
        "apiVersion": TENANCY.api_version,
        "kind": TENANCY.kind,
        "metadata": {
            "name": spec.tenant,
            "labels": {"app.kubernetes.io/managed-by": "gpu-clusters"},
            # From the first moment, so that what is deleted before anybody has looked at it is
            # cleared up too. The controller puts it on objects that come without.
            "finalizers": [FINALIZER],
        },
        "spec": spec.document(),
    }


_COUNTED = "('requests.' + self.gpuResource) in self.quota.hard"
_SPEC_RULES: tuple[Rule, ...] = (
    {
        "rule": _COUNTED,
        "message": "quota.hard must count the GPUs as requests.<gpuResource>; "
        "Kubernetes enforces extended resources under no other key",
    },
    {
        # Not by quantity(): the server's estimate of its cost exceeds what it allows.
        "rule": f"!({_COUNTED}) || "
        "int(self.quota.hard['requests.' + self.gpuResource]) == self.gpus",
        "message": "quota.hard must allow as many GPUs as gpus says",
    },
    {
        "rule": f"!has(self.sizes) || self.sizes.all(s, s in {list(SIZES)})",
        "message": "sizes are those of partitions: 1, 2, 4, 8, ...",
    },
    {
        "rule": "!has(self.sizes) || self.sizes.all(s, s <= self.gpus)",
        "message": "no size may exceed gpus, or a container of that size would wait for ever",
    },
    {
        "rule": "!(self.namespace.startsWith('kube-') || self.namespace.startsWith('gpu-clusters-') || "
        "self.namespace in ['default', 'kata-system', 'gpu-operator'])",
        "message": "that namespace is the cluster's own",
    },
)
_EGRESS_RULES: tuple[Rule, ...] = (
    {
        "rule": "!has(self.nfsCidrs) || self.nfsCidrs.all(c, isCIDR(c))",
        "message": "nfsCidrs are address ranges: 192.0.2.0/24",
    },
)
# Whose it is and where its pods run: changed, the isolation of the old would be nobody's.
_FIXED: Rule = {
    "rule": "self == oldSelf",
    "message": "cannot be changed; delete the Tenancy and make another",
}
_OBJECT_RULES: tuple[Rule, ...] = (
    {
        "rule": "self.metadata.name == self.spec.tenant",
        "message": "a Tenancy is named after its tenant",
    },
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of Tenancy."""
    spec = structural(TenancySpec)
    spec["x-kubernetes-validations"] = list(_SPEC_RULES)
    spec["properties"]["egress"]["x-kubernetes-validations"] = list(_EGRESS_RULES)
    for name in ("tenant", "namespace"):
        spec["properties"][name]["x-kubernetes-validations"] = [_FIXED]
    return definition(
        TENANCY,
        short_names=["ten"],
        description="What isolates one tenant, and whether it is enforced.",
        spec=spec,
        status=structural(TenancyStatus),
        columns=[
            ("Namespace", "string", ".spec.namespace"),
            ("GPUs", "integer", ".spec.gpus"),
            ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
            ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
        rules=_OBJECT_RULES,
    )
