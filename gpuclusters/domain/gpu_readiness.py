"""When GPUs are ready: the policy is reconciled, every node has what it must, its validator says so.

"ready" of the ClusterPolicy alone is not enough: it is also said with no GPU node at all, and before the
first label of node feature discovery (reasons `NoGPUNodes`, `NFDLabelsMissing`; NVIDIA/gpu-operator v26.7.0,
`internal/conditions/consts.go`), and with definitions so old that no device plugin was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuclusters.core.finding import Finding, Level
from gpuclusters.domain.gpu_operator import POLICY, PRESENT_LABEL, RESOURCE_PREFIX, UPGRADE_LABEL
from gpuclusters.domain.gpu_readiness_operands import unseen
from gpuclusters.domain.gpu_readiness_pods import blocked, is_over, is_ready

RECONCILED: Final = "Reconciled"
VALIDATOR: Final = "nvidia-operator-validator"
_UPGRADED: Final = ("", "upgrade-done")
Object = Mapping[str, Any]
Expected = Mapping[str, Mapping[str, int]]
"""By node and resource, how many must be allocatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the cluster shows at one moment."""

    policies: Sequence[Object]
    nodes: Mapping[str, Object]
    daemon_sets: Sequence[Object]
    pods: Sequence[Object]
    """Of the operator's namespace."""
    events: Sequence[Object]
    """Of the operator's namespace, oldest first."""


def _waits(code: str, what: str, why: Iterable[str] = (), node: str = "") -> Finding:
    """Something that is not there yet, with what blocks it."""
    reasons = "; ".join(why)
    problem = f"{what} ({reasons})" if reasons else what
    return Finding(f"gpu.{code}", problem, path=(node,) if node else (), level=Level.REPAIR)


def missing(snapshot: Snapshot, expected: Expected) -> tuple[Finding, ...]:
    """What is waited for, in the order in which it comes; empty when all is ready."""
    return (
        *_policy(snapshot),
        *_rollouts(snapshot),
        *(one for node, amounts in expected.items() for one in _node(snapshot, node, amounts)),
    )


def allocatable(snapshot: Snapshot, expected: Expected) -> dict[str, dict[str, int]]:
    """What the nodes offer: the resources that they must, and all others of NVIDIA that are not 0."""
    return {node: _offered(snapshot.nodes.get(node), expected[node]) for node in expected}


def active_policy(policies: Sequence[Object]) -> Object | None:
    """The one that the operator serves: the oldest, by name among equals."""
    ordered = sorted(
        policies, key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["name"])
    )
    return ordered[0] if ordered else None


def reason(policy: Object | None) -> str:
    """Reason of the condition that holds: `Reconciled`, `OperandNotReady`, …; empty before any."""
    for kind in ("Ready", "Error"):
        found = _condition(policy, kind)
        if found and found.get("status") == "True":
            return str(found.get("reason", ""))
    return ""


def _policy(snapshot: Snapshot) -> Iterator[Finding]:
    policy = active_policy(snapshot.policies)
    if policy is None:
        yield _waits("policy-missing", f"ClusterPolicy {POLICY} is not there")
        return
    name = f"ClusterPolicy {policy['metadata']['name']}"
    ready, error = _condition(policy, "Ready"), _condition(policy, "Error")
    if ready and ready.get("status") == "True":
        if ready.get("reason") != RECONCILED:
            yield _waits(
                "policy-not-ready",
                f"{name} is ready with reason {ready.get('reason')}, not {RECONCILED}: "
                + _IDLE.get(str(ready.get("reason")), str(ready.get("message", ""))),
                _unready(snapshot, "node-feature-discovery"),
            )
    elif error and error.get("status") == "True":
        what = f"{name} is not ready, {error.get('reason')}: {error.get('message', '')}"
        yield _waits("policy-not-ready", what)
    else:
        state = (policy.get("status") or {}).get("state") or "no state yet"
        yield _waits("policy-not-ready", f"{name} says {state}", _unready(snapshot, "gpu-operator"))


_IDLE: Final = {
    "NoGPUNodes": "no node shows an NVIDIA device (label feature.node.kubernetes.io/pci-10de.present)",
    "NFDLabelsMissing": "node feature discovery has labelled no node yet",
}


def _rollouts(snapshot: Snapshot) -> Iterator[Finding]:
    """Operands whose pods are still those of the version before."""
    for body in snapshot.daemon_sets:
        status = body.get("status") or {}
        wanted = int(status.get("desiredNumberScheduled", 0))
        observed = int(status.get("observedGeneration", 0)) >= int(
            body["metadata"].get("generation", 0)
        )
        updated = int(status.get("updatedNumberScheduled", 0))
        available = int(status.get("numberReady", 0))
        name = f"DaemonSet {body['metadata']['name']}"
        pods = [p for p in snapshot.pods if _belongs(p, body) and not is_ready(p)]
        why = tuple(blocked(pod, snapshot.events) for pod in pods)
        if late := unseen(active_policy(snapshot.policies), body):
            yield _waits("rollout", f"{name} is still as it was before the policy named {late}")
        elif not observed:
            yield _waits("rollout", f"{name} is not looked at yet")
        elif wanted and (updated < wanted or available < wanted):
            yield _waits(
                "rollout",
                f"{name}: {available} of {wanted} pods ready, {updated} of this version",
                why,
            )


def _node(snapshot: Snapshot, name: str, amounts: Mapping[str, int]) -> Iterator[Finding]:
    node = snapshot.nodes.get(name)
    if node is None:
        yield _waits("node-missing", f"node {name} is not in the cluster", node=name)
        return
    labels = node["metadata"].get("labels") or {}
    upgrade = str(labels.get(UPGRADE_LABEL, ""))
    if upgrade not in _UPGRADED:
        what = f"node {name}: its driver is being updated ({UPGRADE_LABEL}={upgrade})"
        yield _waits("driver-updating", what, node=name)
    if labels.get(PRESENT_LABEL) != "true":
        yield _waits(
            "not-discovered",
            f"node {name} has no label {PRESENT_LABEL}=true: no GPU was discovered on it",
            _of_node(snapshot, name, "node-feature-discovery"),
            name,
        )
        return
    offered = _offered(node, amounts)
    short = [
        f"{offered[resource]} of {amount} {resource}"
        for resource, amount in sorted(amounts.items())
        if offered[resource] != amount
    ]
    pods = tuple(_of_node(snapshot, name, ""))
    if short:
        what = f"node {name}: {', '.join(short)} allocatable"
        yield _waits("not-allocatable", what, pods or (_UNHEALTHY,), name)
    validators = [
        pod
        for pod in snapshot.pods
        if _is_at(pod, name) and _app(pod) == VALIDATOR and not is_over(pod)
    ]
    if not any(map(is_ready, validators)):
        yield _waits(
            "not-validated",
            f"node {name}: its validator has not passed",
            [blocked(pod, snapshot.events) for pod in validators]
            or ["there is no such pod on the node"],
            name,
        )


_UNHEALTHY: Final = (
    "all pods of the node are ready: the device plugin may have taken GPUs out after an XID error, "
    "look at its log and at dmesg"
)


def _offered(node: Object | None, wanted: Mapping[str, int]) -> dict[str, int]:
    found = ((node or {}).get("status") or {}).get("allocatable") or {}
    amounts = {r: int(n) for r, n in found.items() if r.startswith(RESOURCE_PREFIX)}
    shown = {resource: amount for resource, amount in amounts.items() if amount}
    return {resource: amounts.get(resource, 0) for resource in sorted({*wanted, *shown})}


def _condition(policy: Object | None, kind: str) -> Object | None:
    conditions = ((policy or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if str(c.get("type", "")).lower() == kind.lower()), None)


def _of_node(snapshot: Snapshot, node: str, app: str) -> Iterator[str]:
    for pod in snapshot.pods:
        if _is_at(pod, node) and app in _app(pod) and not is_ready(pod) and not is_over(pod):
            yield blocked(pod, snapshot.events)


def _unready(snapshot: Snapshot, app: str) -> Iterator[str]:
    for pod in snapshot.pods:
        if app == _app(pod) and not is_ready(pod) and not is_over(pod):
            yield blocked(pod, snapshot.events)


def _is_at(pod: Object, node: str) -> bool:
    return (pod.get("spec") or {}).get("nodeName") == node


def _app(pod: Object) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("app") or labels.get("app.kubernetes.io/name") or "")


def _belongs(pod: Object, daemon_set: Object) -> bool:
    uid = daemon_set["metadata"].get("uid")
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)
