"""When GPUs are ready: the policy is reconciled, every node has what it must, its validator says so.

"ready" of the ClusterPolicy alone is not enough: it is also said with no GPU node at all, and before the
first label of node feature discovery (reasons `NoGPUNodes`, `NFDLabelsMissing`; NVIDIA/gpu-operator v26.7.0,
`internal/conditions/consts.go`), and with definitions so old that no device plugin was asked for.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, field_validator

from gpuclusters.core.converge import Clock, Reporter, overdue, poll
from gpuclusters.core.custom_resource import ClusterInputs
from gpuclusters.core.errors import CommandFailedError, UnreachableError
from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.core.ports import ClusterObjects, condition, holds
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.objects import Object, labels
from gpuclusters.gpu_operator.pods import blocked, is_over, is_ready
from gpuclusters.tenancy.objects import NODE, POD

RECONCILED = "Reconciled"
VALIDATOR = "nvidia-operator-validator"
SECTIONS = {
    "nvidia-driver-daemonset": "driver",
    "nvidia-container-toolkit-daemonset": "toolkit",
    "nvidia-device-plugin-daemonset": "devicePlugin",
    "nvidia-dcgm-exporter": "dcgmExporter",
    "gpu-feature-discovery": "gfd",
    "nvidia-mig-manager": "migManager",
    "nvidia-operator-validator": "validator",
}
"""Part of the ClusterPolicy by DaemonSet."""
DEFAULT_TIMEOUT_SECONDS = 2400.0
"""A driver that is compiled takes up to 20 minutes by the chart's own probe, nodes one after the other."""
POLL_SECONDS = 3.0
_UPGRADED = ("", "upgrade-done")
_IDLE = {
    "NoGPUNodes": "no node shows an NVIDIA device (label feature.node.kubernetes.io/pci-10de.present)",
    "NFDLabelsMissing": "node feature discovery has labelled no node yet",
}
_UNHEALTHY = (
    "all pods of the node are ready: the device plugin may have taken GPUs out after an XID error, "
    "look at its log and at dmesg"
)
_STARTING = ("status 500", "status 502", "status 503", "status 504", "status 429")

Expected = Mapping[str, Mapping[str, int]]


Seen = tuple[dict[str, Any], Sequence[Finding]]
"""Outputs of a gate, and what is not there yet."""


class GateInputs(ClusterInputs):
    """Inputs of what waits until nothing is missing in a cluster."""

    looks: ClassVar[int] = 1
    """Looks in a row that must find nothing missing."""

    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=14_400)
    triggers: tuple[str, ...] = ()
    """Whatever makes another look necessary when it changes."""

    def look(self, cluster: Any) -> Seen:
        raise NotImplementedError


class ReadinessInputs(GateInputs):
    called = "gpus"
    looks = 2
    """Between two reconciliations the policy still tells of the last."""

    expected: dict[str, dict[str, int]] = Field(min_length=1)
    """By node and resource, how many must be allocatable: `{"gpu-01": {"nvidia.com/gpu": 8}}`."""
    namespace: str = objects.NAMESPACE

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

    def look(self, cluster: ClusterObjects) -> Seen:
        snapshot = read(cluster, self.namespace)
        waits = missing(snapshot, self.expected)
        nodes = self.expected.items()
        return {
            "allocatable": {node: _offered(snapshot.nodes.get(node), r) for node, r in nodes},
            "reason": reason(snapshot.policy),
            "drift": [one.to_output() for one in waits],
        }, waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    policies: Sequence[Object]
    nodes: Mapping[str, Object]
    daemon_sets: Sequence[Object]
    pods: Sequence[Object]
    events: Sequence[Object]
    """Of the operator's namespace, oldest first."""

    @property
    def policy(self) -> Object | None:
        """The ClusterPolicy that the operator serves: the oldest, by name among equals."""
        return min(
            self.policies,
            key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["name"]),
            default=None,
        )

    def blocks(self, pods: Iterable[Object]) -> list[str]:
        """Why those of these pods that are neither ready nor over are not ready."""
        return [blocked(p, self.events) for p in pods if not is_ready(p) and not is_over(p)]


def read(cluster: ClusterObjects, namespace: str) -> Snapshot:
    return Snapshot(
        policies=cluster.list(objects.CLUSTER_POLICY),
        nodes={str(node["metadata"]["name"]): node for node in cluster.list(NODE)},
        daemon_sets=cluster.list(objects.DAEMON_SET, namespace),
        pods=cluster.list(POD, namespace),
        events=sorted(
            cluster.list(objects.EVENT, namespace), key=lambda e: e.get("lastTimestamp") or ""
        ),
    )


def missing(snapshot: Snapshot, expected: Expected) -> tuple[Finding, ...]:
    """What is waited for, in the order in which it comes; empty when all is ready."""
    return (
        *_policy(snapshot),
        *_rollouts(snapshot),
        *(one for node, amounts in expected.items() for one in _node(snapshot, node, amounts)),
    )


def wait(
    inputs: GateInputs, cluster: ClusterObjects, clock: Clock, reporter: Reporter
) -> dict[str, Any]:
    """Wait until nothing is missing; answers the outputs of then.

    An API server that does not answer is waited for too: on a single server it goes away for about a minute
    when the toolkit tells containerd, because that restarts RKE2.
    """
    told: dict[str, Any] = {}

    def left() -> Sequence[Finding]:
        nonlocal told
        try:
            told, found = inputs.look(cluster)
        except (UnreachableError, CommandFailedError) as error:
            failed = isinstance(error, CommandFailedError)
            if failed and not error.problem.startswith(_STARTING):
                raise
            return [_waits("api-silent", f"the API server does not answer ({error.problem})")]
        return found

    seconds, target = inputs.timeout_seconds, cluster.target
    if found := poll(left, target, seconds, POLL_SECONDS, clock, reporter, looks=inputs.looks):
        remedy = "correct what blocks it and run `up` again, which goes on from here"
        raise Refused(target, overdue(found, f"not ready after {seconds:g} s", remedy))
    return told


def _waits(code: str, what: str, why: Iterable[str] = (), node: str = "") -> Finding:
    """Something that is not there yet, with what blocks it."""
    reasons = "; ".join(why)
    problem = f"{what} ({reasons})" if reasons else what
    return Finding(f"gpu.{code}", problem, path=(node,) if node else (), level=Level.REPAIR)


def reason(policy: Object | None) -> str:
    """Reason of the condition that holds: `Reconciled`, `OperandNotReady`, …; empty before any."""
    found = (condition(policy, kind) for kind in ("Ready", "Error") if holds(policy, kind))
    return next((str(one.get("reason", "")) for one in found), "")


def _policy(snapshot: Snapshot) -> Iterator[Finding]:
    policy = snapshot.policy
    if policy is None:
        yield _waits("policy-missing", f"ClusterPolicy {objects.POLICY} is not there")
        return
    why = reason(policy)
    if holds(policy, "Ready"):
        if why == RECONCILED:
            return
        message = _IDLE.get(why, str(condition(policy, "Ready").get("message", "")))
        told = f"is ready with reason {why}, not {RECONCILED}: {message}"
        app = "node-feature-discovery"
    elif holds(policy, "Error"):
        message = str(condition(policy, "Error").get("message", ""))
        told, app = f"is not ready, {why}: {message}", ""
    else:
        told = f"says {(policy.get('status') or {}).get('state') or 'no state yet'}"
        app = "gpu-operator"
    blocks = snapshot.blocks(pod for pod in snapshot.pods if app and _app(pod) == app)
    yield _waits("policy-not-ready", f"ClusterPolicy {policy['metadata']['name']} {told}", blocks)


def _rollouts(snapshot: Snapshot) -> Iterator[Finding]:
    """Operands whose pods are still those of the version before."""
    for body in snapshot.daemon_sets:
        status, name = body.get("status") or {}, f"DaemonSet {body['metadata']['name']}"
        wanted, updated, available = (
            int(status.get(key, 0))
            for key in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
        )
        generation = int(body["metadata"].get("generation", 0))
        if late := unseen(snapshot.policy, body):
            yield _waits("rollout", f"{name} is still as it was before the policy named {late}")
        elif int(status.get("observedGeneration", 0)) < generation:
            yield _waits("rollout", f"{name} is not looked at yet")
        elif wanted and min(updated, available) < wanted:
            what = f"{name}: {available} of {wanted} pods ready, {updated} of this version"
            pods = [p for p in snapshot.pods if _belongs(p, body) and not is_ready(p)]
            yield _waits("rollout", what, [blocked(pod, snapshot.events) for pod in pods])


def _node(snapshot: Snapshot, name: str, amounts: Mapping[str, int]) -> Iterator[Finding]:
    node = snapshot.nodes.get(name)
    if node is None:
        yield _waits("node-missing", f"node {name} is not in the cluster", node=name)
        return
    known = labels(node)
    pods = [pod for pod in snapshot.pods if (pod.get("spec") or {}).get("nodeName") == name]
    upgrade = str(known.get(objects.UPGRADE_LABEL, ""))
    if upgrade not in _UPGRADED:
        what = f"node {name}: its driver is being updated ({objects.UPGRADE_LABEL}={upgrade})"
        yield _waits("driver-updating", what, node=name)
    if known.get(objects.PRESENT_LABEL) != "true":
        what = f"node {name} has no label {objects.PRESENT_LABEL}=true: no GPU was discovered on it"
        discovery = [pod for pod in pods if "node-feature-discovery" in _app(pod)]
        yield _waits("not-discovered", what, snapshot.blocks(discovery), name)
        return
    offered = _offered(node, amounts)
    short = [f"{offered[r]} of {n} {r}" for r, n in sorted(amounts.items()) if offered[r] != n]
    if short:
        what = f"node {name}: {', '.join(short)} allocatable"
        yield _waits("not-allocatable", what, snapshot.blocks(pods) or (_UNHEALTHY,), name)
    validators = [pod for pod in pods if _app(pod) == VALIDATOR and not is_over(pod)]
    if not any(map(is_ready, validators)):
        what = f"node {name}: its validator has not passed"
        why = snapshot.blocks(validators) or ["there is no such pod on the node"]
        yield _waits("not-validated", what, why, name)


def _offered(node: Object | None, wanted: Mapping[str, int]) -> dict[str, int]:
    """What a node offers: the resources that it must, and all others of NVIDIA that are not 0."""
    amounts = objects.offered(node)
    return {r: amounts.get(r, 0) for r in sorted({*wanted, *(r for r, n in amounts.items() if n)})}


def _app(pod: Object) -> str:
    known = labels(pod)
    return str(known.get("app") or known.get("app.kubernetes.io/name") or "")


def _belongs(pod: Object, daemon_set: Object) -> bool:
    uid = daemon_set["metadata"].get("uid")
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def unseen(policy: Object | None, daemon_set: Object) -> str:
    """What of the policy a DaemonSet does not show yet; empty if it shows all, or is none of these."""
    spec = (policy or {}).get("spec") or {}
    section = spec.get(SECTIONS.get(str(daemon_set["metadata"]["name"]), "")) or {}
    template = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    if not section or not containers:
        return ""
    wanted = _image(section)
    images = [str(one.get("image", "")) for one in containers]
    # Behind a driver's version stands the operating system, and the kernel if it is precompiled.
    if wanted and not any(found == wanted or found.startswith(f"{wanted}-") for found in images):
        return f"image {wanted}"
    config = str((section.get("config") or {}).get("name") or "")
    if config and json.dumps(config) not in json.dumps(template):
        return f"ConfigMap {config}"
    return ""


def _image(section: Object) -> str:
    """The image that a part of the policy names; empty if the operator chooses."""
    repository, name, version = (section.get(key) for key in ("repository", "image", "version"))
    if not (repository and name and version):
        return ""
    return f"{repository}/{name}{'@' if version.startswith('sha256:') else ':'}{version}"
