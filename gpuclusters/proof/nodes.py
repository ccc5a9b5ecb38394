"""Rungs 5 and 7, and the gate behind the device plugin: what Node objects say, and why GPUs are missing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from gpuclusters.core.custom_resource import Name
from gpuclusters.core.finding import Finding, Level
from gpuclusters.core.ports import ClusterObjects, condition, holds
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.objects import EVENT, Object
from gpuclusters.gpu_operator.pods import blocked
from gpuclusters.gpu_operator.readiness import GateInputs, Seen
from gpuclusters.proof.checks import GKE, USERNETES, Check, CheckLevel, Ladder, Outcome
from gpuclusters.proof.model import WHOLE
from gpuclusters.tenancy.objects import NODE, POD
from gpuclusters.usernetes.decide import HOST_IP
from gpuclusters.usernetes.device_plugin import NAMESPACE, PLUGIN_CONTAINER, PLUGIN_LABELS

DEFAULT_TIMEOUT_SECONDS = 600
"""The plugin's image is small; nodes that have just joined pull it through their own network first."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
GOOGLES_PLUGIN: Mapping[str, str] = {"k8s-app": "nvidia-gpu-device-plugin"}
"""Labels of the device plugin that Google runs, whose container has that name too
(github.com/GoogleCloudPlatform/container-engine-accelerators)."""
Expected = Mapping[str, int]
_LINES = 12
_TROUBLE = re.compile(r"^E|error|could not", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: Mapping[str, Object]
    plugins: Mapping[str, Object] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[Object] = ()
    ladder: Ladder = USERNETES


def read(cluster: ClusterObjects, expected: Expected, *, closely: bool = True) -> Snapshot:
    """What the cluster shows; `closely`: also the plugin of nodes that do not offer what they should."""
    nodes = {str(node["metadata"]["name"]): node for node in cluster.list(NODE)}
    short = {name for name, count in expected.items() if offered(nodes.get(name)) != count}
    if not closely or not short:
        return Snapshot(nodes)
    plugins = {
        str(pod["spec"].get("nodeName", "")): pod
        for pod in cluster.list(POD, NAMESPACE)
        if any(
            labels.items() <= (pod["metadata"].get("labels") or {}).items()
            for labels in (PLUGIN_LABELS, GOOGLES_PLUGIN)
        )
        and "deletionTimestamp" not in pod["metadata"]
    }
    logs = {node: _log(cluster, pod) for node, pod in plugins.items() if node in short}
    return Snapshot(nodes, plugins, logs, cluster.list(EVENT, NAMESPACE))


def _log(cluster: ClusterObjects, pod: Object) -> str:
    """Its last lines; empty where there is no log, as of a container that never started."""
    if not any(map(_has_run, (pod.get("status") or {}).get("containerStatuses") or ())):
        return ""
    try:
        googles = (pod["metadata"].get("labels") or {}).items() >= GOOGLES_PLUGIN.items()
        container = GOOGLES_PLUGIN["k8s-app"] if googles else PLUGIN_CONTAINER
        text = cluster.log(NAMESPACE, str(pod["metadata"]["name"]), container)
    except Exception as error:  # noqa: BLE001 (the node must be named, not the log that cannot be had)
        return f"(its log cannot be read: {error})"
    return "\n".join(text.splitlines()[-_LINES:])


def _has_run(status: Object) -> bool:
    states = (status.get("lastState") or {}, status.get("state") or {})
    over = any(state.get("terminated") for state in states)
    return bool(status.get("started") or status.get("restartCount") or over)


def offered(node: Object | None) -> int:
    """GPUs that pods can ask of a node."""
    return objects.offered(node).get(WHOLE, 0)


def registered(snapshot: Snapshot, expected: Expected) -> Iterator[Check]:
    """Rung 5, a check for each node."""
    ladder = snapshot.ladder
    for name in expected:
        node = snapshot.nodes.get(name)
        if node is None:
            there = ", ".join(sorted(snapshot.nodes)) or "none"
            said = f"it is not in the cluster, whose nodes are: {there}"
            join = "a fresh join needs a fresh token: run `up` again" if ladder is USERNETES else ""
            yield ladder.failed(CheckLevel.NODES, name, said, join)
        elif wrong := list(_unready(node, ladder)):
            yield ladder.failed(CheckLevel.NODES, name, "; ".join(wrong), told=wrong)
        elif ladder is GKE:
            yield ladder.passed(CheckLevel.NODES, name, "Ready")
        else:
            said = f"Ready, ExternalIP {_external(node)}"
            yield ladder.passed(CheckLevel.NODES, name, said)


def unexpected(snapshot: Snapshot, expected: Expected) -> Iterator[Check]:
    """Rung 5: nodes of Usernetes that nobody configured. One that joined otherwise is not ours to judge."""
    for name in sorted(set(snapshot.nodes) - set(expected)):
        if HOST_IP in (snapshot.nodes[name]["metadata"].get("labels") or {}):
            said = "it is in the cluster and in no configuration"
            way = f"`kubectl delete node {name}` if its host is gone, or configure it"
            yield USERNETES.failed(CheckLevel.NODES, name, said, way)


def _unready(node: Object, ladder: Ladder) -> Iterator[str]:
    if not holds(node, "Ready"):
        ready = condition(node, "Ready")
        told = ready.get("message") or ready.get("reason") or "its kubelet never said"
        yield f"it is not Ready: {told}"
    # Nodes of Google's have no address on the internet.
    if ladder is USERNETES and not _external(node):
        yield "it has no ExternalIP: `make sync-external-ip` has not run since it joined"
    taints = [str(taint.get("key")) for taint in (node.get("spec") or {}).get("taints") or ()]
    if UNINITIALIZED in taints:
        yield f"it still has the taint {UNINITIALIZED}"


def _external(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(a["address"]) for a in addresses if a.get("type") == "ExternalIP"), "")


def allocatable(snapshot: Snapshot, expected: Expected) -> Iterator[Check]:
    """Rung 7, a check for each node; one that offers too little says what its plugin said."""
    ladder = snapshot.ladder
    for name, count in expected.items():
        node = snapshot.nodes.get(name)
        found = offered(node)
        if node is not None and found == count:
            yield ladder.passed(CheckLevel.ALLOCATABLE, name, f"{WHOLE}: {count}", gpus=count)
            continue
        seen = f"{WHOLE}: {found}, wanted {count}" if node else "it is not in the cluster"
        if found < count:
            why, told = _plugin(snapshot, name)
            seen = "; ".join(part for part in (seen, why) if part)
            yield ladder.failed(CheckLevel.ALLOCATABLE, name, seen, told=(told, why))
        else:
            way = "correct the number of GPUs in the configuration"
            yield ladder.failed(CheckLevel.ALLOCATABLE, name, seen, way)


def _plugin(snapshot: Snapshot, node: str) -> tuple[str, str]:
    """What is wrong with the plugin of a node, in one sentence; and all that it said."""
    pod = snapshot.plugins.get(node)
    if pod is None:
        return "no pod of the device plugin is on it", ""
    log = snapshot.logs.get(node, "")
    # A line of klog without its time and place.
    wrong = [line.split("] ", 1)[-1].strip() for line in log.splitlines() if _TROUBLE.search(line)]
    last = f'; the plugin says "{wrong[0]}"' if wrong else ""
    return f"{blocked(pod, snapshot.events)}{last}", log


def waits(checks: Sequence[Check]) -> Sequence[Finding]:
    """The checks that do not hold, as something to wait for."""
    return [
        Finding("gpu.plugin", f"node {c.subject}: {c.said}", path=(c.subject,), level=Level.REPAIR)
        for c in checks
        if c.outcome is not Outcome.PASSED
    ]


class PluginGateInputs(GateInputs):
    """Inputs of the wait for every node's GPUs."""

    called = "device-plugin"

    expected: dict[Name, int] = Field(min_length=1)
    """GPUs by node."""
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=14_400)

    def look(self, cluster: ClusterObjects) -> Seen:
        snapshot = read(cluster, self.expected)
        missing = waits(list(allocatable(snapshot, self.expected)))
        found = {name: offered(snapshot.nodes.get(name)) for name in self.expected}
        return {"allocatable": found, "drift": [one.to_output() for one in missing]}, missing
