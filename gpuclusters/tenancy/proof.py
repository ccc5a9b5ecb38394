"""Whether a tenant's isolation is enforced, not merely written down, and what its status says of it.

The controller in the cluster judges it, and once more, independently, the program that declares the tenant.
Each proof has a name that stays the same.

Since 1.16 Cilium says nothing per policy and node. Its operator judges each policy (condition `Valid`)
and says of each node whether the agent is up. Agents take in all policies before they serve a pod. The
policy of all tenants is older than any tenant and closes both directions, so an agent that does not know
a tenant's own policies yet lets too little through, never too much.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpuclusters.container_api import image
from gpuclusters.core.finding import Finding
from gpuclusters.core.ports import ObjectKind
from gpuclusters.core.quantity import same_quantities
from gpuclusters.tenancy import program_admission
from gpuclusters.tenancy.admission import POD_POLICY
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
PROVEN_POLICIES = (POD_POLICY, *program_admission.NAMES)
"""Admission policies without which no tenant is isolated: of its pods, and of the cluster's own programs."""
AGENT_TAINT = "node.cilium.io/agent-not-ready"
"""Put on a node by Cilium's operator while the agent is down; no tenant's pod tolerates it."""
AGENT_IS_UP = "CiliumIsUp"
"""Reason of the node condition `NetworkUnavailable=False` that Cilium's operator sets."""
READY = "Ready"
ENFORCED = "Enforced"
_MESSAGE_LIMIT = 4096
_CONDITIONS: Mapping[str, str] = {
    "namespace": "NamespaceReady",
    "quota": "QuotaEnforced",
    "limit-range": "LimitsEnforced",
    "service-account": "AccountClosed",
    "roles": "RolesBound",
    "network-policy": "NetworkIsolated",
    "network-baseline": "NetworkIsolated",
    "network-agents": "NetworkIsolated",
    "pod-security": "PodSecurityEnforced",
    "admission-rules": "AdmissionEnforced",
    "admission-policy": "AdmissionEnforced",
    "allowed-pod": "PodsAllowed",
}
"""Condition of the status by proof."""


def absent(what: str) -> Finding:
    """It does not exist."""
    return Finding("tenancy.missing", f"{what} does not exist")


def _differs(problem: str) -> Finding:
    return Finding("tenancy.differs", problem)


def _not_observed(problem: str) -> Finding:
    return Finding("tenancy.not-observed", problem)


def trial_pods(spec: TenancySpec) -> Mapping[str, dict[str, Any]]:
    """The pods to try, by name of the trial; none is ever created."""
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
    without = copy.deepcopy(pod)
    if spec.runtime_classes:
        pod["spec"]["runtimeClassName"] = spec.runtime_classes[0]
    # Not `privileged: true`: an API server may refuse that by a flag of its own (--allow-privileged),
    # which would prove nothing about the namespace.
    on_host = copy.deepcopy(pod)
    on_host["spec"] |= {"hostNetwork": True, "hostPID": True}
    return {"on_host": on_host, "without_runtime_class": without, "allowed": pod}


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


class Seen(Protocol):
    """The objects of the cluster; absent ones are None."""

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """One of them."""

    def list(self, kind: ObjectKind) -> Sequence[Object]:
        """All of a kind that is not namespaced."""


def prove(spec: TenancySpec, seen: Seen, trials: Trials | None) -> tuple[Proof, ...]:
    """Every proof for this tenant, in a fixed order; `trials` is None when no pod has been tried yet."""

    def own(kind: ObjectKind, name: str) -> Object | None:
        return seen.get(kind, name, spec.namespace)

    roles = {name: own(ROLE_BINDING, name) for name in map(tenant_role, TENANTS_PROGRAMS)}
    classes = {name: seen.get(RUNTIME_CLASS, name) for name in spec.runtime_classes}
    untried = Finding(NOT_TRIED, "it is tried when all the rest holds")
    faults = {
        "namespace": _namespace(spec, seen.get(NAMESPACE, spec.namespace)),
        "quota": _quota(spec, own(RESOURCE_QUOTA, spec.quota.name)),
        "limit-range": _limit_range(own(LIMIT_RANGE, LIMIT_RANGE_NAME)),
        "service-account": _account(own(SERVICE_ACCOUNT, DEFAULT_ACCOUNT)),
        "roles": _roles(roles),
        "network-policy": network_policy(own(NETWORK_POLICY, POLICY)),
        "network-baseline": network_policy(seen.get(BASELINE_POLICY, BASELINE)),
        "network-agents": network_agents(classes, seen.list(NODE)),
        "admission-rules": _rules(seen.list(ADMISSION_POLICY), seen.list(ADMISSION_BINDING)),
        "pod-security": _pod_security(trials.on_host) if trials else iter([untried]),
        "admission-policy": (
            _admission(trials.without_runtime_class) if trials else iter([untried])
        ),
        "allowed-pod": _allowed(trials.allowed) if trials else iter([untried]),
    }
    return tuple(Proof(name, next(found, None)) for name, found in faults.items())


# Each tells the first fault first; only that one counts.


def _namespace(spec: TenancySpec, live: Object | None) -> Iterator[Finding]:
    if live is None:
        yield absent(f"namespace {spec.namespace}")
        return
    if not is_ours(live, spec.tenant):
        yield foreign(spec)
    phase = live.get("status", {}).get("phase")
    if phase == "Terminating":
        yield Finding("tenancy.terminating", remains(live))
    if phase != "Active":
        inactive = f"namespace {spec.namespace} is {phase or 'not yet active'}"
        yield Finding("tenancy.not-active", inactive)
    labels = live["metadata"].get("labels") or {}
    for key, value in spec.pod_security.labels().items():
        if labels.get(key) != value:
            yield _differs(f"label {key} is {labels.get(key)!r}, not {value!r}")


def _quota(spec: TenancySpec, live: Object | None) -> Iterator[Finding]:
    if live is None:
        yield absent(f"ResourceQuota {spec.quota.name}")
        return
    declared = live.get("spec", {}).get("hard") or {}
    enforced = live.get("status", {}).get("hard") or {}
    if not same_quantities(declared, spec.quota.hard):
        yield _differs(f"ResourceQuota {spec.quota.name} says {_short(declared)}")
    if not same_quantities(enforced, declared):
        yield _not_observed(f"the quota controller enforces {_short(enforced)} so far")


def _short(hard: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(hard.items())) or "nothing"


def _limit_range(live: Object | None) -> Iterator[Finding]:
    if live is None:
        yield absent(f"LimitRange {LIMIT_RANGE_NAME}")
    elif not live.get("spec", {}).get("limits"):
        yield Finding("tenancy.empty", f"LimitRange {LIMIT_RANGE_NAME} limits nothing")


def _account(live: Object | None) -> Iterator[Finding]:
    if live is None:
        yield absent("ServiceAccount default")
    elif live.get("automountServiceAccountToken") is not False:
        yield _differs("ServiceAccount default hands its token to pods")


def _roles(live: Mapping[str, Object | None]) -> Iterator[Finding]:
    for program in TENANTS_PROGRAMS:
        name = tenant_role(program)
        binding = live[name]
        if binding is None:
            yield absent(f"RoleBinding {name}")
            continue
        if binding.get("roleRef", {}).get("name") != name:
            yield _differs(f"RoleBinding {name} binds another role")
        bound = [(one.get("kind"), one.get("name")) for one in binding.get("subjects") or ()]
        if bound != [("ServiceAccount", program)]:
            yield _differs(f"RoleBinding {name} binds not just the account {program}")


def network_policy(live: Object | None) -> Iterator[Finding]:
    """Why Cilium has not taken a policy."""
    if live is None:
        yield Finding("tenancy.missing", "it does not exist")
        return
    generation = live.get("metadata", {}).get("generation", 0)
    valid = next((one for one in _conditions(live) if one.get("type") == "Valid"), None)
    if valid is None:
        yield _not_observed(
            "Cilium has not judged it yet (no condition Valid); does Cilium's operator run?"
        )
    elif valid.get("status") != "True":
        said = valid.get("message") or "no reason given"
        yield Finding("tenancy.invalid", f"Cilium refuses it: {said}")
    # Cilium's own condition has no observedGeneration; where there is one it must be current.
    elif valid.get("observedGeneration", generation) < generation:
        yield _not_observed("Cilium has judged an older version of it so far")


def network_agents(
    runtime_classes: Mapping[str, Object | None], nodes: Sequence[Object]
) -> Iterator[Finding]:
    """Why no agent enforces policies on some node that may run a pod of these runtime classes.

    A node that takes no new pod (not ready, cordoned, tainted by Cilium itself) needs none.
    """
    if missing := ", ".join(name for name, live in runtime_classes.items() if live is None):
        yield Finding("tenancy.no-runtime-class", f"RuntimeClass {missing} does not exist")
        return
    classes = [live for live in runtime_classes.values() if live is not None]
    able = [node for node in nodes if _may_run(node, classes)]
    if down := ", ".join(
        sorted(node["metadata"]["name"] for node in able if not _agent_is_up(node))
    ):
        yield Finding(
            "tenancy.agent-down",
            f"Cilium's agent is not up on {down}, which may run the tenant's pods "
            f"(no condition NetworkUnavailable=False with reason {AGENT_IS_UP})",
        )


def node_view(node: Object) -> object:
    """Changes whenever the node might count otherwise in `network_agents`."""
    labels = tuple(sorted((node["metadata"].get("labels") or {}).items()))
    return _takes_pods(node), _agent_is_up(node), labels


def _takes_pods(node: Object) -> bool:
    spec = node.get("spec") or {}
    tainted = any(taint.get("key") == AGENT_TAINT for taint in spec.get("taints") or ())
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(node))
    return ready and not tainted and not spec.get("unschedulable")


def _may_run(node: Object, classes: Sequence[Object]) -> bool:
    labels = node["metadata"].get("labels") or {}
    selectors = [(c.get("scheduling") or {}).get("nodeSelector") or {} for c in classes] or [{}]
    return _takes_pods(node) and any(selector.items() <= labels.items() for selector in selectors)


def _agent_is_up(node: Object) -> bool:
    wanted = ("NetworkUnavailable", "False", AGENT_IS_UP)
    return any(
        (c.get("type"), c.get("status"), c.get("reason")) == wanted for c in _conditions(node)
    )


def _conditions(live: Object) -> Sequence[Object]:
    return (live.get("status") or {}).get("conditions") or ()


def _rules(policies: Sequence[Object], bindings: Sequence[Object]) -> Iterator[Finding]:
    for name in PROVEN_POLICIES:
        policy, binding = _named(policies, name), _named(bindings, name)
        if policy is None:
            yield absent(f"ValidatingAdmissionPolicy {name}")
            continue
        status = policy.get("status", {})
        if status.get("observedGeneration", 0) < policy["metadata"].get("generation", 0):
            yield _not_observed(f"the server has not yet checked {name}")
        if warnings := (status.get("typeChecking") or {}).get("expressionWarnings"):
            yield Finding(
                "tenancy.faulty", f"the server finds fault with {name}: {warnings[0]['warning']}"
            )
        if binding is None:
            yield absent(f"ValidatingAdmissionPolicyBinding {name}")
        elif "Deny" not in binding.get("spec", {}).get("validationActions", ()):
            yield _differs(f"the binding of {name} does not deny")


def _named(objects: Sequence[Object], name: str) -> Object | None:
    return next((one for one in objects if one["metadata"]["name"] == name), None)


def _pod_security(refused: str | None) -> Iterator[Finding]:
    accepted = "the server accepts a pod with the host's network and processes"
    return _refusal(refused, accepted, "Pod Security", "PodSecurity")


def _admission(refused: str | None) -> Iterator[Finding]:
    accepted = f"the server accepts a pod without runtime class; is {POD_POLICY} bound?"
    return _refusal(refused, accepted, POD_POLICY, POD_POLICY)


def _refusal(refused: str | None, accepted: str, by: str, mark: str) -> Iterator[Finding]:
    """A pod must be refused, and by the right rule."""
    if refused is None:
        yield Finding("tenancy.accepted", accepted)
    elif mark not in refused:
        other = f"such a pod is refused, but not by {by}: {refused}"
        yield Finding("tenancy.other-reason", other)


def _allowed(refused: str | None) -> Iterator[Finding]:
    # The quota is asked last: a tenant who has used it up has passed all the rest.
    if refused is not None and "exceeded quota" not in refused:
        kept = f"the server refuses a pod that keeps all the rules: {refused}"
        yield Finding("tenancy.refused", kept)


@dataclass(frozen=True, slots=True)
class News:
    """What an event says of a change."""

    reason: str
    note: str
    kind: Literal["Normal", "Warning"]


def conditions(proofs: Sequence[Proof], generation: int) -> list[Condition]:
    """One condition for each part, in a fixed order; `Ready` comes first."""
    parts: dict[str, list[Proof]] = {READY: list(proofs), **{c: [] for c in _CONDITIONS.values()}}
    for proof in proofs:
        parts[_CONDITIONS[proof.name]].append(proof)
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


def ready(tenancy: Mapping[str, Any]) -> bool:
    """Whether the controller has found everything enforced as of the object's generation."""
    generation = tenancy["metadata"].get("generation")
    found = _ready(tenancy)
    return found.get("status") == "True" and found.get("observedGeneration") == generation


def news(before: Mapping[str, Any], now: Mapping[str, Any]) -> News | None:
    """What there is to tell when a tenancy's status has changed; None unless `Ready` has."""
    found = _ready(now)
    if not found or found.get("status") == _ready(before).get("status"):
        return None
    if found["status"] == "True":
        return News("Ready", "everything that isolates the tenant is enforced", "Normal")
    ending = now["metadata"].get("deletionTimestamp")
    return News(
        "NotReady", f"{found['reason']}: {found['message']}", "Normal" if ending else "Warning"
    )


def _ready(tenancy: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((one for one in _conditions(tenancy) if one.get("type") == READY), {})
