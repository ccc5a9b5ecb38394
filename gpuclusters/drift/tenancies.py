"""Tenancies: declared ones are there as declared, and every part of the isolation is enforced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuclusters.drift import comparing
from gpuclusters.drift.comparing import who
from gpuclusters.drift.report import Finding, of_lines
from gpuclusters.tenancy.model import TenancySpec, tenancy_object
from gpuclusters.tenancy.proof import NOT_TRIED, Proof

Object = Mapping[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "quota": "tenant.quota-changed",
    "limit-range": "tenant.limit-range-changed",
    "network-policy": "tenant.network-policy-missing",
    "network-baseline": "tenant.network-policy-missing",
    "network-agents": "tenant.network-policy-missing",
    "admission-rules": "tenant.admission-policy-changed",
    "admission-policy": "tenant.admission-policy-changed",
}
_WANTED: Final[Mapping[str, str]] = {
    "namespace": "the tenant's namespace, active and labelled",
    "quota": "the declared quota",
    "limit-range": "the declared limits",
    "service-account": "a default account that hands out no token",
    "roles": "the roles of API and controllers, bound to them alone",
    "network-policy": "the tenant's own policy, in force",
    "network-baseline": "the policy for all tenants, in force",
    "network-agents": "an agent on each node that puts policies into force",
    "admission-rules": "rules for pods and for the programs, bound and denying",
    "pod-security": "pods with the host's network are refused",
    "admission-policy": "pods without a runtime class are refused",
    "allowed-pod": "a pod that keeps all rules is accepted",
}


def findings(
    spec: TenancySpec,
    tenancy: Object | None,
    proofs: Sequence[Proof],
    owners: Mapping[str, Object],
) -> Iterator[Finding]:
    """How one tenancy differs; `owners` are the objects that proofs are about, for who changed them."""
    name, what = spec.tenant, f"Tenancy {spec.tenant}"
    if tenancy is None:
        yield Finding("tenant.tenancy-missing", name, what, "the object", "no such object")
        return
    if fields := comparing.differing(tenancy_object(spec), tenancy):
        told = comparing.changed(tenancy, fields)
        yield of_lines("tenant.tenancy-changed", name, what, "as applied by `up`", **told)
    for proof in proofs:
        if proof.fault is None or proof.fault.code == NOT_TRIED:
            continue
        code = _KINDS.get(proof.name, "tenant.not-enforced")
        by = who(owners.get(proof.name, {}), [("spec",)])
        declared = _WANTED.get(proof.name, "enforced")
        yield Finding(code, name, proof.name, declared, proof.fault.problem, by=by)


def unknown(declared: frozenset[str], live: Sequence[Object]) -> Iterator[Finding]:
    """Tenancies that the stack does not have."""
    for tenancy in live:
        name = str(tenancy["metadata"]["name"])
        if name not in declared:
            yield Finding("tenant.tenancy-unknown", name, name, "no such tenant", "a Tenancy")
