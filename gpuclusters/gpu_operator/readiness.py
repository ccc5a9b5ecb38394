"""When GPUs are ready: the policy is reconciled, every node has what it must, its validator says so.

"ready" of the ClusterPolicy alone is not enough: it is also said with no GPU node at all, and before the
first label of node feature discovery (reasons `NoGPUNodes`, `NFDLabelsMissing`; NVIDIA/gpu-operator v26.7.0,
`internal/conditions/consts.go`), and with definitions so old that no device plugin was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.ports import ClusterObjects
from gpuclusters.gpu_operator.objects import (
    CLUSTER_POLICY,
    DAEMON_SET,
    EVENT,
    NAMESPACE,
    POLICY,
    PRESENT_LABEL,
    RESOURCE_PREFIX,
    UPGRADE_LABEL,
)
from gpuclusters.gpu_operator.pods import blocked, is_over, is_ready
from gpuclusters.tenancy.objects import NODE, POD

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


SECTIONS: Final = {
    "nvidia-driver-daemonset": "driver",
    "nvidia-container-toolkit-daemonset": "toolkit",
    "nvidia-device-plugin-daemonset": "devicePlugin",
    "nvidia-dcgm-exporter": "dcgmExporter",
    "gpu-feature-discovery": "gfd",
    "nvidia-mig-manager": "migManager",
    "nvidia-operator-validator": "validator",
}
"""Part of the ClusterPolicy by DaemonSet."""


def unseen(policy: Object | None, daemon_set: Object) -> str:
    """What of the policy a DaemonSet does not show yet; empty if it shows all, or is none of these."""
    name = str(daemon_set["metadata"]["name"])
    spec = (policy or {}).get("spec") or {}
    section = spec.get(SECTIONS.get(name, "")) or {}
    template = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    if not section or not containers:
        return ""
    wanted = image(section)
    images = [str(one.get("image", "")) for one in containers]
    # Behind a driver's version stands the operating system, and the kernel if it is precompiled.
    if wanted and not any(found == wanted or found.startswith(f"{wanted}-") for found in images):
        return f"image {wanted}"
    config = str((section.get("config") or {}).get("name") or "")
    if config and json.dumps(config) not in json.dumps(template):
        return f"ConfigMap {config}"
    return ""


def image(section: Object) -> str:
    """The image that a part of the policy names; empty if the operator chooses."""
    parts = [str(section.get(key) or "") for key in ("repository", "image", "version")]
    if not all(parts):
        return ""
    repository, name, version = parts
    return f"{repository}/{name}{'@' if version.startswith('sha256:') else ':'}{version}"


DEFAULT_TIMEOUT_SECONDS = 2400.0
"""A driver that is compiled takes up to 20 minutes by the chart's own probe, nodes one after the other."""
POLL_SECONDS = 3.0
LOOKS = 2
"""Looks in a row that must find it ready: between two reconciliations the policy still tells of the last."""


class ReadinessInputs(BaseModel):
    """Inputs of the wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    expected: dict[str, dict[str, int]] = Field(min_length=1)
    """By node and resource, how many must be allocatable: `{"gpu-01": {"nvidia.com/gpu": 8}}`."""
    namespace: str = NAMESPACE
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=14_400)
    triggers: tuple[str, ...] = ()
    """Whatever makes another look necessary when it changes."""

    @field_validator("expected")
    @classmethod
    def _names_resources(cls, value: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        for node, amounts in value.items():
            if not amounts:
                raise ValueError(f"{node}: say at least one resource, such as nvidia.com/gpu: 8")
            if wrong := [r for r, n in amounts.items() if "/" not in r or n < 0]:
                raise ValueError(
                    f"{node}: {', '.join(wrong)} is no resource with a number of devices; write "
                    "it as nvidia.com/gpu: 8"
                )
        return value

    @property
    def natural_id(self) -> str:
        """`cluster/gpus`."""
        return f"{self.cluster}/gpus"


class Watched(Protocol):
    """A cluster whose API server may be away."""

    @property
    def target(self) -> str:
        """As errors name it."""

    def snapshot(self, namespace: str) -> Snapshot | str:
        """What it shows; the reason if nobody answers."""


def read(cluster: ClusterObjects, namespace: str) -> Snapshot:
    """What the cluster shows now."""
    return Snapshot(
        policies=cluster.list(CLUSTER_POLICY),
        nodes={str(node["metadata"]["name"]): node for node in cluster.list(NODE)},
        daemon_sets=cluster.list(DAEMON_SET, namespace),
        pods=cluster.list(POD, namespace),
        events=sorted(
            cluster.list(EVENT, namespace), key=lambda event: event.get("lastTimestamp") or ""
        ),
    )


def outputs(snapshot: Snapshot, inputs: ReadinessInputs) -> dict[str, Any]:
    """What the resource tells."""
    policy = active_policy(snapshot.policies)
    return {
        "allocatable": allocatable(snapshot, inputs.expected),
        "reason": reason(policy),
        "drift": [one.to_output() for one in missing(snapshot, inputs.expected)],
    }


def wait(
    inputs: ReadinessInputs, cluster: Watched, clock: Clock, reporter: Reporter
) -> Mapping[str, Any]:
    """Wait until every node has what it must.

    An API server that does not answer is waited for too: on a single server it goes away for about a minute
    when the toolkit tells containerd, because that restarts RKE2.

    Raises:
        Refused: not in time; says everything that is missing and what blocks it.
    """
    told: Mapping[str, Any] = {}

    def look() -> Sequence[Finding]:
        nonlocal told
        shown = cluster.snapshot(inputs.namespace)
        if isinstance(shown, str):
            problem = f"the API server does not answer ({shown})"
            return [Finding("gpu.api-silent", problem, level=Level.REPAIR)]
        told = outputs(shown, inputs)
        return missing(shown, inputs.expected)

    left = poll(
        look,
        target=cluster.target,
        timeout_seconds=inputs.timeout_seconds,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
        looks=LOOKS,
    )
    if left:
        raise late(cluster.target, inputs.timeout_seconds, left)
    return told


def late(target: str, seconds: float, left: Sequence[Finding]) -> Refused:
    """The error for what did not come in time."""
    remedy = "correct what blocks it and run `up` again, which goes on from here"
    return Refused(
        target,
        [
            replace(f, problem=f"not ready after {seconds:g} s: {f.problem}", remedy=remedy)
            for f in left
        ],
    )
