"""Bring a tenant's Tenancy object to what it must be, and prove that the isolation holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.lease_resource import GPU_LEASE
from gpuclusters.domain.ports import Clock, ClusterObjects, ObjectKind
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.tenancy_proof import (
    Evidence,
    Proof,
    Trials,
    active_leases,
    prove,
    trial_pods,
)
from gpuclusters.domain.tenancy_resource import (
    TENANCY,
    TenancySpec,
    tenancy_object,
)

# Controllers act within a second, admission policies within ten; a loaded API server needs more.
DEFAULT_TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.5

NAMESPACE = ObjectKind("", "v1", "namespaces", "Namespace", namespaced=False)
RESOURCE_QUOTA = ObjectKind("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGE = ObjectKind("", "v1", "limitranges", "LimitRange", namespaced=True)
NETWORK_POLICY = ObjectKind(
    "cilium.io", "v2", "ciliumnetworkpolicies", "CiliumNetworkPolicy", namespaced=True
)

# Said by the inputs of the resource itself, so that they cannot disagree with the spec.
_GIVEN_ELSEWHERE = ("tenant", "namespace", "network_policies", "admission_policy")


class TenancyInputs(BaseModel):
    """Inputs of a tenancy policy.

    `spec` is the Tenancy's spec without tenant, namespace, network policies and admission policy,
    which are inputs of their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    tenant: Name
    namespace: Name
    spec: dict[str, Any]
    policies: tuple[str, ...] = ()
    admission_policy: str | None = None
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=3600)

    @model_validator(mode="after")
    def _spec_is_valid(self) -> TenancyInputs:
        twice = sorted(k for k in _GIVEN_ELSEWHERE if k in self.spec or _camel(k) in self.spec)
        if twice:
            raise ValueError(f"spec: leave out {', '.join(twice)}; the resource has them as inputs")
        try:
            self.tenancy()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"spec.{where}: {first['msg']} (got {first['input']!r})") from error
        return self

    def tenancy(self) -> TenancySpec:
        """The whole spec of the Tenancy object."""
        return TenancySpec.model_validate(
            {
                **self.spec,
                "tenant": self.tenant,
                "namespace": self.namespace,
                "networkPolicies": self.policies,
                "admissionPolicy": self.admission_policy,
            }
        )

    @property
    def natural_id(self) -> str:
        """`cluster/tenant`."""
        return f"{self.cluster}/{self.tenant}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was proven about the object as of `generation`."""

    proofs: tuple[Proof, ...]
    generation: int

    @property
    def ready(self) -> bool:
        """Whether everything is proven."""
        return all(p.holds for p in self.proofs)

    @property
    def proven(self) -> list[str]:
        """Names of the proofs that hold."""
        return [p.name for p in self.proofs if p.holds]

    @property
    def missing(self) -> str:
        """What is not proven and why, in one text."""
        return "; ".join(f"{p.name}: {p.missing}" for p in self.proofs if not p.holds)


def ensure_tenancy(
    spec: TenancySpec, cluster: ClusterObjects, clock: Clock, *, timeout_seconds: float
) -> Judgement:
    """Apply the Tenancy and wait until its isolation is enforced.

    Raises:
        RefusalError: not enforced within the time; says which proofs are missing and why.
    """
    cluster.apply(TENANCY, tenancy_object(spec))
    started = clock.now()
    while True:
        judgement = judge(spec, cluster)
        if judgement.ready or clock.now() - started + POLL_SECONDS > timeout_seconds:
            break
        clock.sleep(POLL_SECONDS)
    _report(spec, cluster, judgement)
    if not judgement.ready:
        raise RefusalError(
            f"{cluster.place}: tenant {spec.tenant}",
            f"isolation is not enforced after {timeout_seconds:g} s; {judgement.missing}",
            "correct that and run again (no pod of the tenant should be let in before)",
        )
    return judgement


def judge(spec: TenancySpec, cluster: ClusterObjects) -> Judgement:
    """Gather the evidence once and judge it."""
    tenancy = cluster.get(TENANCY, spec.tenant)
    trials = {name: cluster.try_pod(spec.namespace, pod) for name, pod in trial_pods(spec).items()}
    evidence = Evidence(
        tenancy=tenancy,
        namespace=cluster.get(NAMESPACE, spec.namespace),
        quota=cluster.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace),
        limit_range=cluster.get(LIMIT_RANGE, spec.limit_range.name, spec.namespace),
        network_policies={
            name: cluster.get(NETWORK_POLICY, name, spec.namespace)
            for name in spec.network_policies
        },
        trials=Trials(**trials),
    )
    generation = int((tenancy or {}).get("metadata", {}).get("generation", 0))
    return Judgement(prove(spec, evidence), generation)


def _report(spec: TenancySpec, cluster: ClusterObjects, judgement: Judgement) -> None:
    """Write the judgement into the status, for those who look with kubectl."""
    condition = {
        "type": "Ready",
        "status": "True" if judgement.ready else "False",
        "reason": "Enforced" if judgement.ready else "NotEnforced",
        "message": judgement.missing[:32768],
        "observedGeneration": judgement.generation,
    }
    cluster.apply_status(
        TENANCY,
        {
            "apiVersion": TENANCY.api_version,
            "kind": TENANCY.kind,
            "metadata": {"name": spec.tenant},
            "status": {
                "observedGeneration": judgement.generation,
                "proofs": judgement.proven,
                "conditions": [condition],
            },
        },
    )


def observe_tenancy(spec: TenancySpec, cluster: ClusterObjects) -> Judgement | None:
    """The judgement now; None when the Tenancy object is gone."""
    if cluster.get(TENANCY, spec.tenant) is None:
        return None
    return judge(spec, cluster)


def remove_tenancy(tenant: str, cluster: ClusterObjects) -> None:
    """Delete the Tenancy; absent is fine.

    Raises:
        RefusalError: the tenant still holds GPUs.
    """
    leases: Sequence[dict[str, Any]] = cluster.list(GPU_LEASE)
    held = active_leases(tenant, list(leases))
    if held:
        raise RefusalError(
            f"{cluster.place}: tenant {tenant}",
            f"it still holds GPUs: lease {', '.join(held)}",
            "delete the tenant's containers and wait until their leases are Free",
        )
    cluster.delete(TENANCY, tenant)
