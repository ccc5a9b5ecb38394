"""A node that is taken out of service: nothing new is placed on it, and its GPUs are waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.custom_resource import GROUP, ClusterInputs, Name
from gpuclusters.core.finding import Finding, Level, refused
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.lease.model import GPU_LEASE, HELD, WAITING_FOR_NODE, Phase
from gpuclusters.tenancy.objects import NODE, POD

ANNOTATION = f"{GROUP}/maintenance"
"""Says which stack cordoned the node, so that a cordon of somebody else's is never lifted."""
DEFAULT_TIMEOUT_SECONDS = 3600.0
POLL_SECONDS = 2.0
_AT_REST = frozenset({Phase.FREE, Phase.QUARANTINED})


class Drain(StrEnum):
    """What becomes of the containers that run on the node."""

    WAIT = "wait"
    EVICT = "evict"


class MaintenanceInputs(ClusterInputs):
    called = "{0.node}"

    node: Name
    drain: Drain = Drain.WAIT
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=86_400)


Duty = dict[str, Any]
"""Outputs: `cordoned`; `busy`, GPUs that somebody holds, or that are being taken back; `quarantined`."""


def begin(
    inputs: MaintenanceInputs, cluster: ClusterObjects, clock: Clock, reporter: Reporter
) -> Duty:
    """Cordon the node, end its containers if asked, and wait until its GPUs are nobody's, else `Refused`."""
    target = f"{cluster.target}: node {inputs.node}"
    if cluster.get(NODE, inputs.node) is None:
        problem = "the cluster has no such node"
        raise refused(target, "gpu.node-missing", problem, "take `maintenance` out of its entry")
    cordon = NODE.body(inputs.node, annotations={ANNOTATION: inputs.cluster})
    cluster.apply(NODE, cordon | {"spec": {"unschedulable": True}})
    evicted: set[tuple[str, str]] = set()
    duty: Duty = {}

    def look() -> Sequence[Finding]:
        nonlocal duty
        leases = _leases(cluster, inputs.node)
        if inputs.drain is Drain.EVICT:
            for namespace, pod in sorted(_holders(leases) - evicted):
                reporter.note(f"{target}: ends pod {namespace}/{pod}")
                cluster.delete(POD, pod, namespace)
                evicted.add((namespace, pod))
        duty = _duty(leases, cordoned=True)
        return [Finding("gpu.held", f"GPU {gpu}", level=Level.REPAIR) for gpu in duty["busy"]]

    if poll(look, target, inputs.timeout_seconds, POLL_SECONDS, clock, reporter):
        raise refused(
            target,
            "gpu.held",
            f"GPUs are still held after {inputs.timeout_seconds:g} s: {', '.join(duty['busy'])}; the node "
            "stays cordoned",
            "run again to wait longer, have the tenants end these containers, or set "
            "`maintenance: evict`, which ends them",
        )
    return duty


def observe(inputs: MaintenanceInputs, cluster: ClusterObjects) -> Duty | None:
    """The node now; None when it is gone or not in our maintenance any more."""
    node = cluster.get(NODE, inputs.node)
    if node is None or not _is_ours(node, inputs.cluster):
        return None
    cordoned = bool(node.get("spec", {}).get("unschedulable"))
    return _duty(_leases(cluster, inputs.node), cordoned=cordoned)


def end(inputs: MaintenanceInputs, cluster: ClusterObjects) -> None:
    """Give the node back to the scheduler, unless somebody else cordoned it; absent is fine."""
    node = cluster.get(NODE, inputs.node)
    if node is not None and _is_ours(node, inputs.cluster):
        # An apply that says less: what it leaves out, and nobody else has set, goes.
        cluster.apply(NODE, NODE.body(inputs.node))


def _is_ours(node: Mapping[str, Any], cluster: str) -> bool:
    return (node["metadata"].get("annotations") or {}).get(ANNOTATION) == cluster


def _leases(cluster: ClusterObjects, node: str) -> list[Mapping[str, Any]]:
    return [
        lease for lease in cluster.list(GPU_LEASE) if (lease.get("spec") or {}).get("node") == node
    ]


def _holders(leases: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Namespace and name of the pods that hold GPUs."""
    found = set()
    for lease in leases:
        status = lease.get("status") or {}
        holder = status.get("holder")
        if holder and status.get("phase") in HELD:
            found.add((str(holder["namespace"]), str(holder["pod"])))
    return found


def _duty(leases: Sequence[Mapping[str, Any]], *, cordoned: bool) -> Duty:
    busy, quarantined = [], []
    for lease in sorted(leases, key=lambda lease: str(lease["metadata"]["name"])):
        name, status = str(lease["metadata"]["name"]), lease.get("status") or {}
        phase, holder = str(status.get("phase", "unknown")), status.get("holder")
        who = f", {holder['tenant']}/{holder['pod']}" if holder else ""
        if status.get("reason") == WAITING_FOR_NODE:
            who += f"; {status.get('message', '')}"
        if phase == Phase.QUARANTINED:
            quarantined.append(name)
        # In quarantine a GPU keeps its holder as long as the pod has it.
        if phase not in _AT_REST or holder:
            busy.append(f"{name} ({phase}{who})")
    return {"cordoned": cordoned, "busy": busy, "quarantined": quarantined}
