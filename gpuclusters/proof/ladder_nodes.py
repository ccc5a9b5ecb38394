"""Rungs 5 and 7: what Node objects say, and why a node does not offer its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.domain import known_errors
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked
from gpuclusters.proof.checks import Check
from gpuclusters.proof.ladder import CheckLevel, failed, passed
from gpuclusters.proof.ladder_inputs import WHOLE
from gpuclusters.proof.namespace import JobCluster
from gpuclusters.tenancy.objects import NODE, POD
from gpuclusters.usernetes.decide import HOST_IP
from gpuclusters.usernetes.device_plugin import NAMESPACE, PLUGIN_CONTAINER, PLUGIN_LABELS

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
Object = Mapping[str, Any]
_LINES = 12
_TROUBLE = re.compile(r"^E|error|could not", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment."""

    nodes: Mapping[str, Object]
    plugins: Mapping[str, Object] = field(default_factory=dict)
    """Pod of the device plugin, by node."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """What the plugin printed last, by node."""
    events: Sequence[Object] = ()


def read(cluster: JobCluster, expected: Mapping[str, int], *, closely: bool = True) -> Snapshot:
    """What the cluster shows.

    Args:
        cluster: which.
        expected: GPUs by node.
        closely: also read the plugin of nodes that do not offer what they should.
    """
    nodes = {str(node["metadata"]["name"]): node for node in cluster.list(NODE)}
    if not closely or all(
        name in nodes and offered(nodes[name]) == count for name, count in expected.items()
    ):
        return Snapshot(nodes)
    plugins = {
        str(pod["spec"].get("nodeName", "")): pod
        for pod in cluster.list(POD, NAMESPACE)
        if PLUGIN_LABELS.items() <= (pod["metadata"].get("labels") or {}).items()
        and "deletionTimestamp" not in pod["metadata"]
    }
    logs = {
        node: _log(cluster, pod)
        for node, pod in plugins.items()
        if node in expected and offered(nodes.get(node, {})) != expected[node]
    }
    return Snapshot(nodes, plugins, logs, cluster.list(EVENT, NAMESPACE))


def _log(cluster: JobCluster, pod: Object) -> str:
    """Its last lines; empty where there is no log, as of a container that never started."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if not any(_ran(one) for one in statuses):
        return ""
    try:
        text = cluster.log(NAMESPACE, str(pod["metadata"]["name"]), PLUGIN_CONTAINER)
    except Exception as error:  # noqa: BLE001 (the node must be named, not the log that cannot be had)
        return f"(its log cannot be read: {error})"
    return "\n".join(text.splitlines()[-_LINES:])


def _ran(status: Object) -> bool:
    """Whether a container runs, or ran before."""
    over = (status.get("lastState") or {}).get("terminated") or (status.get("state") or {}).get(
        "terminated"
    )
    return bool(status.get("started") or status.get("restartCount") or over)


def offered(node: Object) -> int:
    """GPUs that pods can ask of a node."""
    told = ((node.get("status") or {}).get("allocatable") or {}).get(WHOLE, "0")
    return int(told) if str(told).isdecimal() else 0


def registered(snapshot: Snapshot, expected: Mapping[str, int]) -> Iterator[Check]:
    """Rung 5, a check for each node."""
    for name in expected:
        node = snapshot.nodes.get(name)
        if node is None:
            there = ", ".join(sorted(snapshot.nodes)) or "none"
            yield failed(
                CheckLevel.NODES,
                name,
                f"it is not in the cluster, whose nodes are: {there}",
                "a fresh join needs a fresh token: run `up` again",
            )
            continue
        wrong = list(_unready(node))
        if wrong:
            yield failed(
                CheckLevel.NODES, name, "; ".join(wrong), known_errors.advice("ladder", *wrong)
            )
            continue
        yield passed(CheckLevel.NODES, name, f"Ready, ExternalIP {_external(node)}")


def strangers(snapshot: Snapshot, expected: Mapping[str, int]) -> Iterator[Check]:
    """Rung 5: nodes of Usernetes that nobody configured. One that joined otherwise is not ours to judge."""
    for name in sorted(set(snapshot.nodes) - set(expected)):
        if HOST_IP in (snapshot.nodes[name]["metadata"].get("labels") or {}):
            yield failed(
                CheckLevel.NODES,
                name,
                "it is in the cluster and in no configuration",
                f"`kubectl delete node {name}` if its host is gone, or configure it",
            )


def _unready(node: Object) -> Iterator[str]:
    status = node.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    ready: Object = conditions[0] if conditions else {}
    if ready.get("status") != "True":
        told = ready.get("message") or ready.get("reason") or "its kubelet never said"
        yield f"it is not Ready: {told}"
    if not _external(node):
        yield "it has no ExternalIP: `make sync-external-ip` has not run since it joined"
    taints = [str(taint.get("key")) for taint in (node.get("spec") or {}).get("taints") or ()]
    if UNINITIALIZED in taints:
        yield f"it still has the taint {UNINITIALIZED}"


def _external(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(a["address"]) for a in addresses if a.get("type") == "ExternalIP"), "")


def allocatable(snapshot: Snapshot, expected: Mapping[str, int]) -> Iterator[Check]:
    """Rung 7, a check for each node; one that offers too little says what its plugin said."""
    for name, count in expected.items():
        node = snapshot.nodes.get(name)
        found = offered(node or {})
        if node is not None and found == count:
            yield passed(CheckLevel.ALLOCATABLE, name, f"{WHOLE}: {count}", gpus=count)
            continue
        seen = f"{WHOLE}: {found}, wanted {count}" if node else "it is not in the cluster"
        if found > count:
            yield failed(
                CheckLevel.ALLOCATABLE, name, seen, "correct gpus.count in the configuration"
            )
            continue
        why, told = _plugin(snapshot, name)
        yield failed(
            CheckLevel.ALLOCATABLE,
            name,
            "; ".join(part for part in (seen, why) if part),
            known_errors.advice("ladder", told, why),
        )


def _plugin(snapshot: Snapshot, node: str) -> tuple[str, str]:
    """What is wrong with the plugin of a node, in one sentence; and all that it said."""
    pod = snapshot.plugins.get(node)
    if pod is None:
        return "no pod of the device plugin is on it", ""
    log = snapshot.logs.get(node, "")
    wrong = [line for line in log.splitlines() if _TROUBLE.search(line)]
    last = f'; the plugin says "{_message(wrong[0])}"' if wrong else ""
    return f"{blocked(pod, snapshot.events)}{last}", log


def _message(line: str) -> str:
    """A line of klog without its time and place."""
    return line.split("] ", 1)[-1].strip()
