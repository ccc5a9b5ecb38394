"""Whether a tenant's isolation is enforced, not merely written down.

The evidence is gathered elsewhere, by the controller in the cluster and once more, independently, by
the program that declares the tenant; here it is judged. Each proof has a name that stays the same, so
that what is missing can be said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.core.finding import Finding
from gpuclusters.domain import image
from gpuclusters.domain.quantity import same_quantities
from gpuclusters.tenancy import network as tenancy_network
from gpuclusters.tenancy import program_admission
from gpuclusters.tenancy.admission import POD_POLICY
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import LIMIT_RANGE_NAME, foreign, is_ours, remains
from gpuclusters.tenancy.program_accounts import TENANTS_PROGRAMS, tenant_role

NOT_TRIED = "tenancy.not-tried"


def absent(what: str) -> Finding:
    """It does not exist."""
    return Finding("tenancy.missing", f"{what} does not exist")


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
                    "image": image.example(spec.images),
                    "imagePullPolicy": "Always",
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


Object = Mapping[str, Any]

PROVEN_POLICIES = (POD_POLICY, *program_admission.NAMES)
"""Admission policies without which no tenant is isolated: of its pods, and of the cluster's own programs."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that must hold; `fault` says why it does not, None when it does."""

    name: str
    fault: Finding | None = None

    @property
    def holds(self) -> bool:
        """Whether it is proven."""
        return self.fault is None

    @property
    def missing(self) -> str:
        """Why it does not hold; empty when it does."""
        return self.fault.problem if self.fault else ""


@dataclass(frozen=True, slots=True)
class Trials:
    """What the server said to dry-run pods: None is accepted, else the reason of the refusal."""

    on_host: str | None
    without_runtime_class: str | None
    allowed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all tenants of a cluster have in common; None and missing keys are absent objects."""

    baseline: Object | None
    admission_policies: Mapping[str, Object]
    admission_bindings: Mapping[str, Object]
    nodes: Sequence[Object]
    runtime_classes: Mapping[str, Object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was found in the cluster; None and missing keys are absent objects."""

    namespace: Object | None
    quota: Object | None
    limit_range: Object | None
    service_account: Object | None
    roles: Mapping[str, Object]
    """RoleBindings by name."""
    network_policy: Object | None
    shared: Shared
    trials: Trials | None
    """None when no pod has been tried yet."""


def prove(spec: TenancySpec, evidence: Evidence) -> tuple[Proof, ...]:
    """Every proof for this tenant, in a fixed order."""
    return tuple(_proofs(spec, evidence))


def _proofs(spec: TenancySpec, evidence: Evidence) -> Iterator[Proof]:
    shared, trials = evidence.shared, evidence.trials
    yield Proof("namespace", _namespace(spec, evidence.namespace))
    yield Proof("quota", _quota(spec, evidence.quota))
    yield Proof("limit-range", _limit_range(evidence.limit_range))
    yield Proof("service-account", _account(evidence.service_account))
    yield Proof("roles", _roles(evidence.roles))
    yield Proof("network-policy", tenancy_network.policy(evidence.network_policy))
    yield Proof("network-baseline", tenancy_network.policy(shared.baseline))
    yield Proof(
        "network-agents",
        tenancy_network.agents(spec.runtime_classes, shared.runtime_classes, shared.nodes),
    )
    yield Proof("admission-rules", _rules(shared))
    if trials is None:
        untried = Finding(NOT_TRIED, "it is tried when all the rest holds")
        yield from (Proof(n, untried) for n in ("pod-security", "admission-policy", "allowed-pod"))
        return
    yield Proof("pod-security", _pod_security(trials.on_host))
    yield Proof("admission-policy", _admission(trials.without_runtime_class))
    yield Proof("allowed-pod", _allowed(trials.allowed))


def _namespace(spec: TenancySpec, live: Object | None) -> Finding | None:
    if live is None:
        return absent(f"namespace {spec.namespace}")
    if not is_ours(live, spec.tenant):
        return Finding("tenancy.foreign", foreign(spec))
    phase = live.get("status", {}).get("phase")
    if phase == "Terminating":
        return Finding("tenancy.terminating", remains(live))
    if phase != "Active":
        return Finding(
            "tenancy.not-active", f"namespace {spec.namespace} is {phase or 'not yet active'}"
        )
    labels = live["metadata"].get("labels") or {}
    for key, value in spec.pod_security.labels().items():
        if labels.get(key) != value:
            return Finding("tenancy.differs", f"label {key} is {labels.get(key)!r}, not {value!r}")
    return None


def _quota(spec: TenancySpec, live: Object | None) -> Finding | None:
    if live is None:
        return absent(f"ResourceQuota {spec.quota.name}")
    declared = live.get("spec", {}).get("hard") or {}
    if not same_quantities(declared, spec.quota.hard):
        return Finding(
            "tenancy.differs", f"ResourceQuota {spec.quota.name} says {_short(declared)}"
        )
    enforced = live.get("status", {}).get("hard") or {}
    if not same_quantities(enforced, declared):
        return Finding(
            "tenancy.not-observed", f"the quota controller enforces {_short(enforced)} so far"
        )
    return None


def _short(hard: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(hard.items())) or "nothing"


def _limit_range(live: Object | None) -> Finding | None:
    if live is None:
        return absent(f"LimitRange {LIMIT_RANGE_NAME}")
    if not live.get("spec", {}).get("limits"):
        return Finding("tenancy.empty", f"LimitRange {LIMIT_RANGE_NAME} limits nothing")
    return None


def _account(live: Object | None) -> Finding | None:
    if live is None:
        return absent("ServiceAccount default")
    if live.get("automountServiceAccountToken") is not False:
        return Finding("tenancy.differs", "ServiceAccount default hands its token to pods")
    return None


def _roles(live: Mapping[str, Object]) -> Finding | None:
    for program in TENANTS_PROGRAMS:
        name = tenant_role(program)
        if (binding := live.get(name)) is None:
            return absent(f"RoleBinding {name}")
        if binding.get("roleRef", {}).get("name") != name:
            return Finding("tenancy.differs", f"RoleBinding {name} binds another role")
        bound = [(one.get("kind"), one.get("name")) for one in binding.get("subjects") or ()]
        if bound != [("ServiceAccount", program)]:
            return Finding(
                "tenancy.differs", f"RoleBinding {name} binds not just the account {program}"
            )
    return None


def _rules(shared: Shared) -> Finding | None:
    for name in PROVEN_POLICIES:
        policy, binding = shared.admission_policies.get(name), shared.admission_bindings.get(name)
        if fault := _rule(name, policy, binding):
            return fault
    return None


def _rule(name: str, policy: Object | None, binding: Object | None) -> Finding | None:
    if policy is None:
        return absent(f"ValidatingAdmissionPolicy {name}")
    status = policy.get("status", {})
    if status.get("observedGeneration", 0) < policy["metadata"].get("generation", 0):
        return Finding("tenancy.not-observed", f"the server has not yet checked {name}")
    if warnings := (status.get("typeChecking") or {}).get("expressionWarnings"):
        return Finding(
            "tenancy.faulty", f"the server finds fault with {name}: {warnings[0]['warning']}"
        )
    if binding is None:
        return absent(f"ValidatingAdmissionPolicyBinding {name}")
    if "Deny" not in binding.get("spec", {}).get("validationActions", ()):
        return Finding("tenancy.differs", f"the binding of {name} does not deny")
    return None


def _pod_security(refused: str | None) -> Finding | None:
    if refused is None:
        return Finding(
            "tenancy.accepted", "the server accepts a pod with the host's network and processes"
        )
    if "PodSecurity" not in refused:
        return Finding(
            "tenancy.other-reason", f"such a pod is refused, but not by Pod Security: {refused}"
        )
    return None


def _admission(refused: str | None) -> Finding | None:
    if refused is None:
        return Finding(
            "tenancy.accepted",
            f"the server accepts a pod without runtime class; is {POD_POLICY} bound?",
        )
    if POD_POLICY not in refused:
        return Finding(
            "tenancy.other-reason", f"such a pod is refused, but not by {POD_POLICY}: {refused}"
        )
    return None


def _allowed(refused: str | None) -> Finding | None:
    # The quota is asked last: a tenant who has used it up has passed all the rest.
    if refused is None or "exceeded quota" in refused:
        return None
    return Finding(
        "tenancy.refused", f"the server refuses a pod that keeps all the rules: {refused}"
    )
