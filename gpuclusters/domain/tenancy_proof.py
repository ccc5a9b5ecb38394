"""Whether a tenant's isolation is enforced, not merely written down.

The evidence is gathered elsewhere; here it is judged. Each proof has a name that stays the same, so
that what is missing can be said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuclusters.domain.quantity import same_quantities
from gpuclusters.domain.tenancy_resource import TenancySpec


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that must hold; `missing` says why it does not, None when it does."""

    name: str
    missing: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it is proven."""
        return self.missing is None


@dataclass(frozen=True, slots=True)
class Trials:
    """What the server said to dry-run pods: None is accepted, else the reason of the refusal."""

    on_host: str | None
    without_runtime_class: str | None
    allowed: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found in the cluster; None and missing keys are absent objects."""

    tenancy: Mapping[str, Any] | None
    namespace: Mapping[str, Any] | None
    quota: Mapping[str, Any] | None
    limit_range: Mapping[str, Any] | None
    network_policies: Mapping[str, Mapping[str, Any] | None]
    trials: Trials


def prove(spec: TenancySpec, evidence: Evidence) -> tuple[Proof, ...]:
    """Every proof for this tenant, in a fixed order."""
    return tuple(_proofs(spec, evidence))


def _proofs(spec: TenancySpec, evidence: Evidence) -> Iterator[Proof]:
    yield Proof("tenancy", _tenancy(spec, evidence.tenancy))
    yield Proof("namespace", _namespace(spec, evidence.namespace))
    yield Proof("quota", _quota(spec, evidence.quota))
    yield Proof("limit-range", _limit_range(spec, evidence.limit_range))
    for name in spec.network_policies:
        yield Proof(f"network-policy/{name}", _policy(evidence.network_policies.get(name)))
    yield Proof("pod-security", _pod_security(evidence.trials.on_host))
    if spec.admission_policy:
        yield Proof("admission-policy", _admission(spec, evidence.trials.without_runtime_class))
    yield Proof("allowed-pod", _allowed(evidence.trials.allowed))


def _tenancy(spec: TenancySpec, live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return "the Tenancy object does not exist"
    wanted, found = spec.document(), live.get("spec", {})
    differing = sorted(k for k in wanted.keys() | found.keys() if wanted.get(k) != found.get(k))
    return f"the Tenancy object has another {', '.join(differing)}" if differing else None


def _namespace(spec: TenancySpec, live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return f"namespace {spec.namespace} does not exist"
    phase = live.get("status", {}).get("phase")
    if phase != "Active":
        return f"namespace {spec.namespace} is {phase or 'not yet active'}"
    labels = live.get("metadata", {}).get("labels") or {}
    for key, value in spec.pod_security.labels().items():
        if labels.get(key) != value:
            return f"label {key} is {labels.get(key)!r}, not {value!r}"
    return None


def _quota(spec: TenancySpec, live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return f"ResourceQuota {spec.quota.name} does not exist"
    declared = live.get("spec", {}).get("hard") or {}
    if not same_quantities(declared, spec.quota.hard):
        return f"ResourceQuota {spec.quota.name} says {_short(declared)}"
    enforced = live.get("status", {}).get("hard") or {}
    if not same_quantities(enforced, declared):
        return f"the quota controller enforces {_short(enforced)} so far"
    return None


def _short(hard: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(hard.items())) or "nothing"


def _limit_range(spec: TenancySpec, live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return f"LimitRange {spec.limit_range.name} does not exist"
    if not live.get("spec", {}).get("limits"):
        return f"LimitRange {spec.limit_range.name} limits nothing"
    return None


def _policy(live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return "it does not exist"
    generation = live.get("metadata", {}).get("generation", 0)
    for condition in live.get("status", {}).get("conditions") or ():
        if condition.get("type") != "Valid":
            continue
        if condition.get("status") != "True":
            return f"Cilium refuses it: {condition.get('message') or 'no reason given'}"
        # Cilium's own condition has no observedGeneration; where there is one it must be current.
        observed = condition.get("observedGeneration", generation)
        return None if observed >= generation else "Cilium has judged an older version of it so far"
    return "Cilium has not judged it yet (no condition Valid); does Cilium's operator run?"


def _pod_security(refused: str | None) -> str | None:
    if refused is None:
        return "the server accepts a pod with the host's network and processes"
    if "PodSecurity" not in refused:
        return f"such a pod is refused, but not by Pod Security: {refused}"
    return None


def _admission(spec: TenancySpec, refused: str | None) -> str | None:
    if refused is None:
        return f"the server accepts a pod without runtime class; is {spec.admission_policy} bound?"
    if str(spec.admission_policy) not in refused:
        return f"such a pod is refused, but not by {spec.admission_policy}: {refused}"
    return None


def _allowed(refused: str | None) -> str | None:
    # The quota is asked last: a tenant who has used it up has passed all the rest.
    if refused is None or "exceeded quota" in refused:
        return None
    return f"the server refuses a pod that keeps all the rules: {refused}"


def trial_pods(spec: TenancySpec) -> Mapping[str, dict[str, Any]]:
    """The pods to try, by name of the trial; none is ever created."""
    allowed = _pod(spec)
    # Not `privileged: true`: an API server may refuse that by a flag of its own (--allow-privileged),
    # which would prove nothing about the namespace.
    on_host = _pod(spec)
    on_host["spec"] |= {"hostNetwork": True, "hostPID": True}
    without = _pod(spec)
    without["spec"].pop("runtimeClassName", None)
    return {"on_host": on_host, "without_runtime_class": without, "allowed": allowed}


def _pod(spec: TenancySpec) -> dict[str, Any]:
    """A pod that keeps every rule of a tenant, restricted Pod Security included."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-clusters-proof", "namespace": spec.namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "proof",
                    "image": "gpu-clusters.invalid/proof:1",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    if spec.runtime_classes:
        pod["spec"]["runtimeClassName"] = spec.runtime_classes[0]
    return pod


def active_leases(tenant: str, leases: list[Mapping[str, Any]]) -> list[str]:
    """Leases of the tenant that still hold GPUs, as "name (phase)"; no phase counts as held."""
    found: list[str] = []
    for lease in leases:
        phase = (lease.get("status") or {}).get("phase", "unknown")
        if (lease.get("spec") or {}).get("tenant") == tenant and phase != "Free":
            found.append(f"{lease['metadata']['name']} ({phase})")
    return sorted(found)
