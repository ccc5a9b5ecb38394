"""Whether a tenant's isolation is enforced, not merely written down, and what its status says of it.

The controller in the cluster judges it, and once more, independently, the program that declares the tenant.

Since 1.16 Cilium says nothing per policy and node: its operator judges each policy (condition `Valid`) and
says of each node whether the agent is up. The policy of all tenants is older than any tenant and closes both
directions: an agent that does not know a tenant's own policies yet lets too little through, never too much.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from gpuclusters.container_api import image
from gpuclusters.core import scripts
from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ObjectKind, condition, holds
from gpuclusters.core.quantity import same_quantities
from gpuclusters.tenancy.admission import POD_POLICY, PROGRAM_POLICIES
from gpuclusters.tenancy.isolation import BASELINE, POLICY
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import (
    ADMISSION_BINDING,
    ADMISSION_POLICY,
    BASELINE_POLICY,
    DEFAULT_ACCOUNT,
    LIMIT_RANGE,
    LIMIT_RANGE_NAME,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    foreign,
    is_ours,
    remains,
)
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, tenant_role

Object = Mapping[str, Any]
Condition = dict[str, Any]

NOT_TRIED = "tenancy.not-tried"
PROVEN_POLICIES = (POD_POLICY, *PROGRAM_POLICIES)
"""Admission policies without which no tenant is isolated: of its pods, and of the cluster's own programs."""
AGENT_TAINT = "node.cilium.io/agent-not-ready"
"""Put on a node by Cilium's operator while the agent is down; no tenant's pod tolerates it."""
AGENT_IS_UP = "CiliumIsUp"
"""Reason of the node condition `NetworkUnavailable=False` that Cilium's operator sets."""
READY = "Ready"
ENFORCED = "Enforced"
_MESSAGE_LIMIT = 4096


def dry_run_pods(spec: TenancySpec) -> Mapping[str, dict[str, Any]]:
    """The pods to try, by name of the dry run; none is ever created."""
    words = {
        "namespace": spec.namespace,
        "image": image.example(spec.images),
        "runtime_class": next(iter(spec.runtime_classes), None),
        "on_host": None,
    }
    # Not `privileged: true`: an API server may refuse that by a flag of its own (--allow-privileged),
    # which would prove nothing about the namespace.
    dry_runs: Mapping[str, Mapping[str, Any]] = {
        "on_host": {"on_host": True},
        "without_runtime_class": {"runtime_class": None},
        "allowed": {},
    }
    return {
        name: scripts.manifest("tenancy/dry-run-pods.yaml", words | dict(more), "pod")
        for name, more in dry_runs.items()
    }


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that must hold; `fault` says why it does not, None when it does."""

    name: str
    fault: Finding | None = None

    @property
    def holds(self) -> bool:
        return self.fault is None

    @property
    def missing(self) -> str:
        """Why it does not hold; empty when it does."""
        return self.fault.problem if self.fault else ""


@dataclass(frozen=True, slots=True)
class DryRuns:
    """What the server said to dry-run pods: None is accepted, else the reason of the refusal."""

    on_host: str | None
    without_runtime_class: str | None
    allowed: str | None


class Seen(Protocol):
    """The objects of the cluster; absent ones are None."""

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """One of them."""

    def list(self, kind: ObjectKind) -> Sequence[Object]:
        """All of a kind that is not namespaced."""


def prove(spec: TenancySpec, seen: Seen, dry_runs: DryRuns | None) -> tuple[Proof, ...]:
    """Every proof for this tenant, in a fixed order; `dry_runs` is None when no pod has been tried yet."""
    return tuple(Proof(name, judge(spec, seen, dry_runs)) for name, (_, judge) in _PROOFS.items())


# Each tells the first fault only.


def absent(what: str) -> Finding:
    return Finding("tenancy.missing", f"{what} does not exist")


_differs = partial(Finding, "tenancy.differs")
_not_observed = partial(Finding, "tenancy.not-observed")


def _namespace(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    live = seen.get(NAMESPACE, spec.namespace)
    if live is None:
        return absent(f"namespace {spec.namespace}")
    if not is_ours(live, spec.tenant):
        return foreign(spec)
    phase = live.get("status", {}).get("phase")
    if phase == "Terminating":
        return Finding("tenancy.terminating", remains(live))
    if phase != "Active":
        inactive = f"namespace {spec.namespace} is {phase or 'not yet active'}"
        return Finding("tenancy.not-active", inactive)
    labels = live["metadata"].get("labels") or {}
    for key, value in spec.pod_security.labels().items():
        if labels.get(key) != value:
            return _differs(f"label {key} is {labels.get(key)!r}, not {value!r}")
    return None


def _quota(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    live = seen.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace)
    if live is None:
        return absent(f"ResourceQuota {spec.quota.name}")
    declared = live.get("spec", {}).get("hard") or {}
    enforced = live.get("status", {}).get("hard") or {}
    if not same_quantities(declared, spec.quota.hard):
        return _differs(f"ResourceQuota {spec.quota.name} says {_short(declared)}")
    if not same_quantities(enforced, declared):
        return _not_observed(f"the quota controller enforces {_short(enforced)} so far")
    return None


def _short(hard: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(hard.items())) or "nothing"


def _limit_range(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    live = seen.get(LIMIT_RANGE, LIMIT_RANGE_NAME, spec.namespace)
    if live is None:
        return absent(f"LimitRange {LIMIT_RANGE_NAME}")
    nothing = f"LimitRange {LIMIT_RANGE_NAME} limits nothing"
    return None if live.get("spec", {}).get("limits") else Finding("tenancy.empty", nothing)


def _account(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    live = seen.get(SERVICE_ACCOUNT, DEFAULT_ACCOUNT, spec.namespace)
    if live is None:
        return absent("ServiceAccount default")
    closed = live.get("automountServiceAccountToken") is False
    return None if closed else _differs("ServiceAccount default hands its token to pods")


def _roles(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    for program in TENANTS_PROGRAMS:
        name = tenant_role(program)
        binding = seen.get(ROLE_BINDING, name, spec.namespace)
        if binding is None:
            return absent(f"RoleBinding {name}")
        if binding.get("roleRef", {}).get("name") != name:
            return _differs(f"RoleBinding {name} binds another role")
        bound = [(one.get("kind"), one.get("name")) for one in binding.get("subjects") or ()]
        if bound != [("ServiceAccount", program)]:
            return _differs(f"RoleBinding {name} binds not just the account {program}")
    return None


def network_policy(live: Object | None) -> Finding | None:
    """Why Cilium has not taken a policy."""
    if live is None:
        return absent("it")
    generation = live.get("metadata", {}).get("generation", 0)
    valid = condition(live, "Valid")
    if not valid:
        return _not_observed(
            "Cilium has not judged it yet (no condition Valid); does Cilium's operator run?"
        )
    if valid.get("status") != "True":
        said = valid.get("message") or "no reason given"
        return Finding("tenancy.invalid", f"Cilium refuses it: {said}")
    # Cilium's own condition has no observedGeneration; where there is one it must be current.
    if valid.get("observedGeneration", generation) < generation:
        return _not_observed("Cilium has judged an older version of it so far")
    return None


def _agents(spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    classes = {name: seen.get(RUNTIME_CLASS, name) for name in spec.runtime_classes}
    return network_agents(classes, seen.list(NODE))


def network_agents(
    runtime_classes: Mapping[str, Object | None], nodes: Sequence[Object]
) -> Finding | None:
    """Why no agent enforces policies on a node that takes new pods of these runtime classes."""
    if missing := ", ".join(name for name, live in runtime_classes.items() if live is None):
        return Finding("tenancy.no-runtime-class", f"RuntimeClass {missing} does not exist")
    selectors = [
        ((live or {}).get("scheduling") or {}).get("nodeSelector") or {}
        for live in runtime_classes.values()
    ] or [{}]
    down = []
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        fits = any(selector.items() <= labels.items() for selector in selectors)
        if fits and _takes_pods(node) and not _agent_is_up(node):
            down.append(node["metadata"]["name"])
    if not down:
        return None
    return Finding(
        "tenancy.agent-down",
        f"Cilium's agent is not up on {', '.join(sorted(down))}, which may run the tenant's pods "
        f"(no condition NetworkUnavailable=False with reason {AGENT_IS_UP})",
    )


def node_view(node: Object) -> object:
    """Changes whenever the node might count otherwise in `network_agents`."""
    labels = tuple(sorted((node["metadata"].get("labels") or {}).items()))
    return _takes_pods(node), _agent_is_up(node), labels


def _takes_pods(node: Object) -> bool:
    spec = node.get("spec") or {}
    tainted = any(taint.get("key") == AGENT_TAINT for taint in spec.get("taints") or ())
    return holds(node, "Ready") and not tainted and not spec.get("unschedulable")


def _agent_is_up(node: Object) -> bool:
    said = condition(node, "NetworkUnavailable")
    return (said.get("status"), said.get("reason")) == ("False", AGENT_IS_UP)


def _rules(_spec: TenancySpec, seen: Seen, _: DryRuns | None) -> Finding | None:
    policies, bindings = _named(seen.list(ADMISSION_POLICY)), _named(seen.list(ADMISSION_BINDING))
    for name in PROVEN_POLICIES:
        policy, binding = policies.get(name), bindings.get(name)
        if policy is None:
            return absent(f"ValidatingAdmissionPolicy {name}")
        status = policy.get("status", {})
        if status.get("observedGeneration", 0) < policy["metadata"].get("generation", 0):
            return _not_observed(f"the server has not yet checked {name}")
        if warnings := (status.get("typeChecking") or {}).get("expressionWarnings"):
            warned = f"the server finds fault with {name}: {warnings[0]['warning']}"
            return Finding("tenancy.faulty", warned)
        if binding is None:
            return absent(f"ValidatingAdmissionPolicyBinding {name}")
        if "Deny" not in binding.get("spec", {}).get("validationActions", ()):
            return _differs(f"the binding of {name} does not deny")
    return None


def _named(objects: Iterable[Object]) -> Mapping[str, Object]:
    return {one["metadata"]["name"]: one for one in objects}


def _refusal(refused: str | None, accepted: str, by: str, mark: str) -> Finding | None:
    """A pod must be refused, and by the right rule."""
    if refused is None:
        return Finding("tenancy.accepted", accepted)
    other = f"such a pod is refused, but not by {by}: {refused}"
    return None if mark in refused else Finding("tenancy.other-reason", other)


def _pod_security(_spec: TenancySpec, _seen: Seen, dry_runs: DryRuns | None) -> Finding | None:
    accepted = "the server accepts a pod with the host's network and processes"
    return (
        _refusal(dry_runs.on_host, accepted, "Pod Security", "PodSecurity")
        if dry_runs
        else _UNTRIED
    )


def _admission(_spec: TenancySpec, _seen: Seen, dry_runs: DryRuns | None) -> Finding | None:
    accepted = f"the server accepts a pod without runtime class; is {POD_POLICY} bound?"
    if dry_runs is None:
        return _UNTRIED
    return _refusal(dry_runs.without_runtime_class, accepted, POD_POLICY, POD_POLICY)


def _allowed(_spec: TenancySpec, _seen: Seen, dry_runs: DryRuns | None) -> Finding | None:
    if dry_runs is None:
        return _UNTRIED
    # The quota is asked last: a tenant who has used it up has passed all the rest.
    if dry_runs.allowed is None or "exceeded quota" in dry_runs.allowed:
        return None
    kept = f"the server refuses a pod that keeps all the rules: {dry_runs.allowed}"
    return Finding("tenancy.refused", kept)


_UNTRIED = Finding(NOT_TRIED, "it is tried when all the rest holds")
_Judge = Callable[[TenancySpec, Seen, DryRuns | None], Finding | None]
_PROOFS: Mapping[str, tuple[str, _Judge]] = {
    "namespace": ("NamespaceReady", _namespace),
    "quota": ("QuotaEnforced", _quota),
    "limit-range": ("LimitsEnforced", _limit_range),
    "service-account": ("AccountClosed", _account),
    "roles": ("RolesBound", _roles),
    "network-policy": (
        "NetworkIsolated",
        lambda spec, seen, _: network_policy(seen.get(NETWORK_POLICY, POLICY, spec.namespace)),
    ),
    "network-baseline": (
        "NetworkIsolated",
        lambda _spec, seen, _: network_policy(seen.get(BASELINE_POLICY, BASELINE)),
    ),
    "network-agents": ("NetworkIsolated", _agents),
    "admission-rules": ("AdmissionEnforced", _rules),
    "pod-security": ("PodSecurityEnforced", _pod_security),
    "admission-policy": ("AdmissionEnforced", _admission),
    "allowed-pod": ("PodsAllowed", _allowed),
}
"""By name of the proof: its condition in the status, and who judges it."""


@dataclass(frozen=True, slots=True)
class News:
    reason: str
    note: str
    kind: Literal["Normal", "Warning"]


def conditions(proofs: Sequence[Proof], generation: int) -> list[Condition]:
    """One condition for each part, in a fixed order; `Ready` comes first."""
    parts: dict[str, list[Proof]] = {READY: list(proofs), **{c: [] for c, _ in _PROOFS.values()}}
    for proof in proofs:
        parts[_PROOFS[proof.name][0]].append(proof)
    return [_condition(kind, its, generation) for kind, its in parts.items()]


def not_ready(reason: str, message: str, generation: int, kind: str = READY) -> Condition:
    """A condition that does not hold; by default `Ready`, of a tenancy that no proof can judge."""
    return {
        "type": kind,
        "status": "False",
        "reason": reason,
        "message": message[:_MESSAGE_LIMIT],
        "observedGeneration": generation,
    }


def _condition(kind: str, proofs: Sequence[Proof], generation: int) -> Condition:
    faults = [(proof, proof.fault) for proof in proofs if proof.fault]
    # What has not been tried yet is a consequence of the rest, not a reason.
    telling = [pair for pair in faults if pair[1].code != NOT_TRIED] or faults
    if not telling:
        return not_ready(ENFORCED, "", generation, kind) | {"status": "True"}
    message = "; ".join(f"{proof.name}: {fault.problem}" for proof, fault in telling)
    # The code in the spelling of Kubernetes: `tenancy.not-observed` is `NotObserved`.
    code = telling[0][1].code
    reason = code.partition(".")[2].replace("-", " ").title().replace(" ", "")
    found = not_ready(reason, message, generation, kind)
    return found | {"status": "Unknown"} if code == NOT_TRIED and kind != READY else found


def merged(new: Sequence[Condition], old: Sequence[Mapping[str, Any]], now: str) -> list[Condition]:
    """`new`, each with the time of its last change of status."""
    since = {(one["type"], one.get("status")): one.get("lastTransitionTime") for one in old}
    return [
        {**one, "lastTransitionTime": since.get((one["type"], one["status"])) or now} for one in new
    ]


def unready(tenancy: Object) -> str | None:
    """One word why it is not ready; only what the controller found of this generation counts."""
    found = condition(tenancy, READY)
    if not found:
        return "NotSeen"
    if found.get("observedGeneration") != tenancy["metadata"].get("generation"):
        return "Changing"
    return None if found["status"] == "True" else found.get("reason") or "NotReady"


def ready(tenancy: Object) -> bool:
    """Whether the controller has found everything enforced as of the object's generation."""
    return unready(tenancy) is None


def news(before: Mapping[str, Any], now: Mapping[str, Any]) -> News | None:
    """What there is to tell when a tenancy's status has changed; None unless `Ready` has."""
    found = condition(now, READY)
    if not found or found.get("status") == condition(before, READY).get("status"):
        return None
    if found["status"] == "True":
        return News("Ready", "everything that isolates the tenant is enforced", "Normal")
    ending = now["metadata"].get("deletionTimestamp")
    return News(
        "NotReady", f"{found['reason']}: {found['message']}", "Normal" if ending else "Warning"
    )
