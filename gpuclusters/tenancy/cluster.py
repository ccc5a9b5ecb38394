"""Declare a tenant's Tenancy object, wait for the controller, and prove that the isolation holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, model_validator

from gpuclusters.core import adoption
from gpuclusters.core.converge import Clock
from gpuclusters.core.custom_resource import ClusterInputs, Name
from gpuclusters.core.finding import Finding, refused
from gpuclusters.core.ports import ClusterObjects, condition
from gpuclusters.lease.model import GPU_LEASE, held_by
from gpuclusters.tenancy.model import TENANCY, TenancySpec, tenancy_object
from gpuclusters.tenancy.on_demand import on_demand
from gpuclusters.tenancy.proof import (
    NOT_TRIED,
    READY,
    DryRuns,
    Proof,
    absent,
    dry_run_pods,
    prove,
    ready,
)

# The controller acts within a second, admission policies within ten; a loaded API server needs more.
DEFAULT_TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.5

_WHO = (
    "the controllers of the cluster make a tenant's namespace and policies; look at their pods and "
    "at who leads: `kubectl get leases.coordination.k8s.io -A "
    "--field-selector metadata.name=gpu-clusters-controllers`"
)


class OnDemandInputs(ClusterInputs):
    called = "on-demand"

    declared: tuple[Name, ...] = ()
    """Tenants of the stack, whose Tenancies are their own resources'."""


class TenancyInputs(ClusterInputs):
    """Inputs of a tenancy policy; `spec` is the Tenancy's without tenant and namespace."""

    called = "{0.tenant}"

    tenant: Name
    namespace: Name
    spec: dict[str, Any]
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=3600)
    adopt: bool = False

    @model_validator(mode="after")
    def _spec_is_valid(self) -> TenancyInputs:
        if twice := sorted({"tenant", "namespace"} & self.spec.keys()):
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
            {**self.spec, "tenant": self.tenant, "namespace": self.namespace}
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was proven about the object as of `generation`."""

    proofs: tuple[Proof, ...]
    generation: int

    @property
    def ready(self) -> bool:
        """Whether everything is proven."""
        return all(p.holds for p in self.proofs)

    def outputs(self) -> dict[str, Any]:
        proven = [p.name for p in self.proofs if p.holds]
        return {"ready": self.ready, "proofs": proven, "observed_generation": self.generation}

    @property
    def missing(self) -> str:
        """What is not proven and why, in one text."""
        return "; ".join(f"{p.name}: {p.missing}" for p in self.proofs if not p.holds)


def ensure_tenancy(
    spec: TenancySpec, cluster: ClusterObjects, clock: Clock, *, timeout_seconds: float
) -> Judgement:
    """Apply the Tenancy, wait for the controller, see for ourselves; `Refused` if not enforced in time."""
    cluster.apply(TENANCY, tenancy_object(spec))
    started, late = clock.now(), False
    while not late:
        tenancy = cluster.get(TENANCY, spec.tenant)
        late = clock.now() - started + POLL_SECONDS > timeout_seconds
        if late or _controller(spec, tenancy) is None:
            judgement = judge(spec, tenancy, cluster)
            if judgement.ready:
                return judgement
        if not late:
            clock.sleep(POLL_SECONDS)
    raise refused(
        f"{cluster.target}: tenant {spec.tenant}",
        "tenancy.not-enforced",
        f"isolation is not enforced after {timeout_seconds:g} s; {judgement.missing}",
        "correct that and run again (no pod of the tenant should be let in before)",
    )


def judge(
    spec: TenancySpec, tenancy: Mapping[str, Any] | None, cluster: ClusterObjects
) -> Judgement:
    """Gather the evidence once and judge it; nothing that the controller says is taken for a proof."""
    proofs = prove(spec, cluster, None)
    if all(p.fault is None or p.fault.code == NOT_TRIED for p in proofs):
        tried = {name: cluster.try_pod(spec.namespace, p) for name, p in dry_run_pods(spec).items()}
        proofs = prove(spec, cluster, DryRuns(**tried))
    first = Proof("controller", _controller(spec, tenancy))
    generation = int((tenancy or {}).get("metadata", {}).get("generation", 0))
    return Judgement((first, *proofs), generation)


def _controller(spec: TenancySpec, live: Mapping[str, Any] | None) -> Finding | None:
    """Whether the controller calls the Tenancy ready as it is declared."""
    if live is None:
        return absent("the Tenancy object")
    wanted, found = spec.document(), live.get("spec", {})
    differing = sorted(k for k in wanted.keys() | found.keys() if wanted.get(k) != found.get(k))
    if differing:
        return Finding("tenancy.differs", f"the Tenancy object has another {', '.join(differing)}")
    if ready(live):
        return None
    status, generation = live.get("status") or {}, live["metadata"].get("generation", 0)
    observed = status.get("observedGeneration")
    if observed is None:
        return Finding("tenancy.no-controller", f"no controller has looked at the Tenancy; {_WHO}")
    if observed < generation:
        return Finding(
            "tenancy.not-observed", f"no controller has looked at the Tenancy's change; {_WHO}"
        )
    said = condition(live, READY).get("message")
    return Finding("tenancy.not-ready", f"the controller says: {said}")


def observe_tenancy(spec: TenancySpec, cluster: ClusterObjects) -> Judgement | None:
    """The judgement now; None when the Tenancy object is gone."""
    tenancy = cluster.get(TENANCY, spec.tenant)
    return None if tenancy is None else judge(spec, tenancy, cluster)


def differences(spec: TenancySpec, cluster: ClusterObjects) -> tuple[str, ...]:
    """In words, how a Tenancy that is there is not what is declared; empty if there is none."""
    live = cluster.get(TENANCY, spec.tenant)
    if live is None:
        return ()
    there = TenancySpec.model_validate(live.get("spec") or {}).document()
    return tuple(adoption.tree("spec", there, spec.document()))


def remove_tenancy(tenant: str, cluster: ClusterObjects) -> None:
    """Delete the Tenancy and wait until it is cleared up; `Refused` while the tenant holds GPUs."""
    _refuse_holders([tenant], cluster)
    cluster.delete(TENANCY, tenant)


def remove_on_demand(declared: Sequence[str], cluster: ClusterObjects) -> None:
    """Delete the Tenancies that were made on demand; `Refused`, with all left, while one holds GPUs."""
    names = [str(one["metadata"]["name"]) for one in on_demand(cluster.list(TENANCY))]
    names = [name for name in names if name not in declared]
    _refuse_holders(names, cluster)
    for name in names:
        cluster.delete(TENANCY, name)


def _refuse_holders(tenants: Sequence[str], cluster: ClusterObjects) -> None:
    leases = cluster.list(GPU_LEASE) if tenants else ()
    for tenant in tenants:
        if held := held_by(tenant, leases):
            raise refused(
                f"{cluster.target}: tenant {tenant}",
                "tenancy.holds-gpus",
                f"it still holds GPUs: lease {', '.join(held)}",
                "delete the tenant's containers and wait until their leases are Free",
            )
