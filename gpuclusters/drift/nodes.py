"""Nodes and leases: there, Ready, open to pods, labelled and tainted as declared, offering all their GPUs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuclusters.core.ports import condition
from gpuclusters.drift.comparing import who
from gpuclusters.drift.report import Finding
from gpuclusters.drift.resources import label
from gpuclusters.lease.model import Phase, lease_name

Object = Mapping[str, Any]

_SYSTEM_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""What Kubernetes itself sets and takes away: it follows from conditions that are told already."""
_OFFERED = {Phase.FREE, Phase.RESERVED, Phase.ACTIVATING, Phase.LEASED}
"""Phases in which the device plugin announces a GPU as healthy."""
_PATIENCE_SECONDS = 60
"""After a lease's deadline: controllers that are just being replaced take over within this time."""


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those that a resource of the stack sets and tells of."""
    taints: frozenset[str] = frozenset()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """By resource, what it must offer; of others nothing is said."""
    serves: bool = True
    """False while the configuration takes it out of service: then it is cordoned."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the configuration expects of a cluster: plain values, the same for every type of cluster."""

    nodes: tuple[ExpectedNode, ...] = ()
    others: frozenset[str] = frozenset()
    """Names of nodes that are somebody else's business."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Labels without which a node that is not declared is nobody's business: the cluster is shared. Empty:
    every node of the cluster should be declared."""
    leases: Mapping[str, int] = field(default_factory=dict)
    """By node, how many GPUs have a lease; empty where there are no leases."""
    tenants: frozenset[str] | None = None
    on_demand: bool = False
    """Whether other tenants get a tenancy by asking for it."""
    firmware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def findings(
    wanted: Expected, live: Sequence[Object], withheld: Mapping[str, int]
) -> Iterator[Finding]:
    """How nodes differ; `withheld` by their leases are GPUs between two tenants, or in quarantine."""
    there = {str(node["metadata"]["name"]): node for node in live}
    for node in wanted.nodes:
        if node.name in there:
            yield from _node(node, there[node.name], withheld.get(node.name, 0))
        else:
            what = f"Node {node.name}"
            yield Finding("node.missing", node.name, what, "in the cluster", "no such node")
    for name in sorted(there.keys() - {node.name for node in wanted.nodes} - wanted.others):
        metadata: Object = there[name]["metadata"]
        labels: Object = metadata.get("labels") or {}
        if any(labels.get(key) != value for key, value in wanted.marks.items()):
            continue
        created = metadata.get("creationTimestamp")
        since = f"a node since {created}" if created else "a node"
        yield Finding("node.unknown", name, f"Node {name}", "no such node", since, up=False)


def _node(wanted: ExpectedNode, live: Object, kept_back: int) -> Iterator[Finding]:
    name, what = wanted.name, f"Node {wanted.name}"
    ready = condition(live, "Ready")
    if ready.get("status") != "True":
        said = str(ready.get("message") or ready.get("reason") or "nothing is said")
        found = f"{ready.get('status', 'Unknown')}: {said}"
        yield Finding("node.not-ready", name, what, "Ready", found)
    spec: Object = live.get("spec") or {}
    if spec.get("unschedulable") and wanted.serves:
        by = who(live, [("spec", "unschedulable")])
        yield Finding("node.cordoned", name, what, "open to pods", "cordoned", by=by, up=False)
    labels: Object = live["metadata"].get("labels") or {}
    for key, value in sorted(wanted.labels.items()):
        if labels.get(key) != value:
            by = who(live, [("metadata", "labels", key)])
            yield label(name, key, value, labels.get(key), by)
    yield from _taints(wanted, live, spec)
    yield from _offered(wanted, live, kept_back)


def _taints(wanted: ExpectedNode, live: Object, spec: Object) -> Iterator[Finding]:
    found = {
        f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"
        for taint in spec.get("taints") or ()
        if not taint["key"].startswith(_SYSTEM_TAINTS)
    }
    none = "no such taint"
    for taint in sorted(wanted.taints - found):
        what = f"taint {taint.split('=')[0]}"
        yield Finding("node.taint-missing", wanted.name, what, taint, none)
    for taint in sorted(found - wanted.taints):
        what, by = f"taint {taint.split('=')[0]}", who(live, [("spec", "taints")])
        yield Finding("node.taint-unknown", wanted.name, what, none, taint, by=by)


def _offered(wanted: ExpectedNode, live: Object, kept_back: int) -> Iterator[Finding]:
    offered: Object = (live.get("status") or {}).get("allocatable") or {}
    for resource, count in sorted(wanted.allocatable.items()):
        text = str(offered.get(resource) or 0)
        found = int(text) if text.isdecimal() else 0
        if count - kept_back <= found <= count:
            continue  # the leases tell of those that are kept back, each by its name
        code = "node.allocatable-higher" if found > count else "node.allocatable-lower"
        note = f", {kept_back} of them are kept back by their leases" if kept_back else ""
        yield Finding(
            code, wanted.name, resource, f"{count} {resource}{note}", f"{found} {resource}"
        )


def of_leases(
    wanted: Mapping[str, int], live: Sequence[Object], now: datetime
) -> Iterator[Finding]:
    """Leases of GPUs: one for each GPU of a node, none in quarantine, none past its deadline."""
    there = {str(lease["metadata"]["name"]): lease for lease in live}
    names = {
        lease_name(node, module): node for node, n in wanted.items() for module in range(1, n + 1)
    }
    for name in sorted(names.keys() - there.keys()):
        yield Finding("gpu.lease-missing", names[name], name, "a lease", "no lease")
    for name, lease in sorted(there.items()):
        node = _node_of(lease)
        if name in names:
            yield from _lease(node, name, lease.get("status") or {}, now)
        else:
            found = f"a lease of {node or 'no node'}"
            yield Finding("gpu.lease-unknown", node, name, "no such lease", found, up=False)


def _lease(node: str, name: str, status: Object, now: datetime) -> Iterator[Finding]:
    phase = str(status.get("phase") or "")
    if phase == Phase.QUARANTINED:
        reason = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
        last = status.get("lastTenant")
        had = f"; last had by {last}" if last else ""
        since = status.get("since") or "an unknown time"
        found = f"in quarantine since {since}{had}: {reason or 'no reason'}"
        yield Finding("gpu.lease-quarantined", node, name, "in service", found, up=False)
        return
    deadline = _time(status.get("deadline"))
    if deadline is not None and (now - deadline).total_seconds() > _PATIENCE_SECONDS:
        declared = f"out of {phase} by {status['deadline']}"
        yield Finding("gpu.lease-stuck", node, name, declared, f"still {phase}", up=False)


def withheld(live: Sequence[Object]) -> Mapping[str, int]:
    """By node, how many GPUs their leases keep from the node's allocatable."""
    held = (lease for lease in live if (lease.get("status") or {}).get("phase") not in _OFFERED)
    return Counter(map(_node_of, held))


def _node_of(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("node") or "")


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
