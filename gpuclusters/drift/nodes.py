"""Nodes: there, Ready, open to pods, labelled and tainted as declared, offering all their GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.drift.expected import Expected, ExpectedNode
from gpuclusters.drift.finding import Finding
from gpuclusters.drift.owners import who

Object = Mapping[str, Any]

_SYSTEM_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""What Kubernetes itself sets and takes away: it follows from conditions that are told already."""


def findings(
    wanted: Expected,
    live: Sequence[Object],
    *,
    withheld: Mapping[str, int] | None = None,
) -> Iterator[Finding]:
    """How nodes differ."""
    there = {str(node["metadata"]["name"]): node for node in live}
    for node in wanted.nodes:
        if node.name not in there:
            yield Finding(
                "node.missing", node.name, f"Node {node.name}", "in the cluster", "no such node"
            )
        else:
            kept_back = (withheld or {}).get(node.name, 0)
            yield from _node(node, there[node.name], kept_back)
    known = {node.name for node in wanted.nodes} | wanted.others
    for name in sorted(there.keys() - known):
        labels: Object = there[name]["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in wanted.marks.items()):
            continue
        created = str(there[name]["metadata"].get("creationTimestamp") or "")
        since = f"a node since {created}" if created else "a node"
        yield Finding("node.unknown", name, f"Node {name}", "no such node", since, up=False)


def _node(wanted: ExpectedNode, live: Object, kept_back: int) -> Iterator[Finding]:
    name, what = wanted.name, f"Node {wanted.name}"
    ready = _condition(live, "Ready")
    if ready.get("status") != "True":
        said = str(ready.get("message") or ready.get("reason") or "nothing is said")
        yield Finding(
            "node.not-ready", name, what, "Ready", f"{ready.get('status', 'Unknown')}: {said}"
        )
    spec: Object = live.get("spec") or {}
    if spec.get("unschedulable") and wanted.serves:
        by = who(live, [("spec", "unschedulable")])
        yield Finding("node.cordoned", name, what, "open to pods", "cordoned", by=by, up=False)
    yield from _labels(wanted, live)
    yield from _taints(wanted, live)
    yield from _offered(wanted, live, kept_back)


def _labels(wanted: ExpectedNode, live: Object) -> Iterator[Finding]:
    there: Object = live["metadata"].get("labels") or {}
    for key, value in sorted(wanted.labels.items()):
        found = there.get(key)
        if found == value:
            continue
        yield Finding(
            "node.label-missing" if found is None else "node.label-changed",
            wanted.name,
            f"label {key}",
            f"{key}={value}",
            "no such label" if found is None else f"{key}={found}",
            by=who(live, [("metadata", "labels", key)]),
        )


def _taints(wanted: ExpectedNode, live: Object) -> Iterator[Finding]:
    found = {
        taint_text(taint)
        for taint in (live.get("spec") or {}).get("taints") or ()
        if not str(taint.get("key")).startswith(_SYSTEM_TAINTS)
    }
    for taint in sorted(wanted.taints - found):
        yield Finding(
            "node.taint-missing",
            wanted.name,
            f"taint {taint.split('=')[0]}",
            taint,
            "no such taint",
        )
    for taint in sorted(found - wanted.taints):
        by = who(live, [("spec", "taints")])
        yield Finding(
            "node.taint-unknown",
            wanted.name,
            f"taint {taint.split('=')[0]}",
            "no such taint",
            taint,
            by=by,
        )


def taint_text(taint: Object) -> str:
    """`key=value:Effect`, as kubectl takes it."""
    value = str(taint.get("value") or "")
    return f"{taint.get('key')}{'=' + value if value else ''}:{taint.get('effect')}"


def _offered(wanted: ExpectedNode, live: Object, kept_back: int) -> Iterator[Finding]:
    offered: Object = (live.get("status") or {}).get("allocatable") or {}
    for resource, count in sorted(wanted.allocatable.items()):
        found = _count(offered.get(resource))
        if found == count:
            continue
        higher = found > count
        if not higher and found >= count - kept_back:
            continue  # the leases tell of these, each by its name
        note = f", {kept_back} of them are kept back by their leases" if kept_back else ""
        yield Finding(
            "node.allocatable-higher" if higher else "node.allocatable-lower",
            wanted.name,
            resource,
            f"{count} {resource}{note}",
            f"{found} {resource}",
        )


def _count(value: Any) -> int:
    text = str(value or 0)
    return int(text) if text.isdecimal() else 0


def _condition(live: Object, kind: str) -> Object:
    conditions = (live.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})
