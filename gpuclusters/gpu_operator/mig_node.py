"""The MIG layout of one node: asked for by a label, done by the operator's MIG manager.

The MIG manager follows the label `nvidia.com/mig.config` and answers in
`nvidia.com/mig.config.state` with pending, rebooting, success or failed (NVIDIA GPU Operator
documentation, MIG). To divide a GPU anew it ends everything that uses the GPU, so that this refuses
while pods have GPUs of the node. The label has two owners: the operator sets `all-disabled` where
it finds none (gpu-operator v26.7.0, nodelabeling_controller.go), so ours is written with force. The
operator decides by its cache, which may be older than our label: on a node that had no label, its
first one may still overwrite ours, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import refused
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.ports import ClusterObjects, ObjectKind
from gpuclusters.gpu_operator.mig_layout import DISABLED
from gpuclusters.gpu_operator.objects import MIG_LABEL, MIG_STATE_LABEL, NAMESPACE, RESOURCE_PREFIX
from gpuclusters.tenancy.objects import NODE, POD

MANAGER = "gpu-clusters-mig"
DEFAULT_TIMEOUT_SECONDS = 900.0
OPERATOR_SECONDS = 2400.0
"""How long a node may take until it offers anything of NVIDIA: a driver that is compiled takes 20 minutes."""
POLL_SECONDS = 2.0
_SUCCESS, _FAILED = "success", "failed"
_OVER = ("Succeeded", "Failed")


class MigInputs(BaseModel):
    """Inputs of one node's layout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    node: Name
    layout: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
    """Name of a layout in the MIG manager's configuration, such as `all-1g.10gb`."""
    expected: dict[str, int] = Field(min_length=1)
    """By resource, what the node must offer afterwards."""
    evict: bool = False
    """Whether pods that use GPUs of the node are ended."""
    namespace: str = NAMESPACE
    """Of the operator, whose own pods do not count."""
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=7200)
    """For the layout alone: it counts from when the node's operands work."""
    adopt: bool = False

    @property
    def natural_id(self) -> str:
        """`cluster/node/mig`."""
        return f"{self.cluster}/{self.node}/mig"


class MigCluster(ClusterObjects, Protocol):
    """The part of a cluster that this needs."""

    def take(self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        """Server-side apply that takes fields from other managers."""


@dataclass(frozen=True, slots=True)
class MigState:
    """A node's layout as it is."""

    layout: str
    state: str
    offered: Mapping[str, int]

    def has(self, layout: str, expected: Mapping[str, int]) -> bool:
        """Whether it is this one, done, and offers what it should."""
        return (
            self.layout == layout
            and self.state == _SUCCESS
            and all(int(self.offered.get(r, 0)) == n for r, n in expected.items())
        )

    def outputs(self) -> dict[str, Any]:
        """What the resource tells."""
        return {"current": self.layout, "state": self.state, "allocatable": dict(self.offered)}


def ensure(inputs: MigInputs, cluster: MigCluster, clock: Clock, reporter: Reporter) -> MigState:
    """Ask for the layout unless the node has it, and wait until it is done.

    Raises:
        Refused: no such node; pods use its GPUs; the MIG manager failed; not done in time.
    """
    place = f"{cluster.target}: node {inputs.node}"
    found = observe(inputs, cluster)
    if found is None:
        raise refused(
            place, "mig.node-missing", "the cluster has no such node", "take it out of the pool"
        )
    if found.has(inputs.layout, inputs.expected):
        return found
    if found.layout != inputs.layout:
        _ask(inputs, cluster, reporter, place, found)
    return _settled(inputs, cluster, clock, reporter, place, found)


def observe(inputs: MigInputs, cluster: ClusterObjects) -> MigState | None:
    """The node's layout now; None if there is no such node."""
    node = cluster.get(NODE, inputs.node)
    if node is None:
        return None
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    offered = {r: int(n) for r, n in allocatable.items() if r.startswith(RESOURCE_PREFIX)}
    return MigState(
        str(labels.get(MIG_LABEL, "")),
        str(labels.get(MIG_STATE_LABEL, "")),
        {r: n for r, n in sorted(offered.items()) if n or r in inputs.expected},
    )


def differences(inputs: MigInputs, state: MigState | None) -> tuple[str, ...]:
    """In words, how a layout that the node is asked for already is not the one that is declared."""
    if state is None or state.layout in ("", inputs.layout):
        return ()
    return (f"its GPUs are divided as {state.layout} instead of {inputs.layout}",)


def has_drifted(outputs: Mapping[str, Any], layout: str, expected: Mapping[str, int]) -> bool:
    """Whether what a refresh found is not what was asked for."""
    if outputs.get("current") is None:
        return False
    offered = outputs.get("allocatable") or {}
    found = MigState(str(outputs["current"]), str(outputs.get("state")), offered)
    return not found.has(layout, expected)


def release(inputs: MigInputs, cluster: MigCluster, reporter: Reporter) -> None:
    """Give the label up: the operator puts its own default there. Refuses while pods use the GPUs.

    Raises:
        Refused: they do, and were not to be ended.
    """
    found = observe(inputs, cluster)
    if found is None or found.layout != inputs.layout:
        return
    _free(inputs, cluster, reporter, f"{cluster.target}: node {inputs.node}")
    cluster.take(NODE, _body(inputs.node, {}), manager=MANAGER)


def users(pods: Sequence[Mapping[str, Any]], node: str, namespace: str) -> list[tuple[str, str]]:
    """Namespace and name of the pods that have GPUs of a node, the operator's own left out."""
    found = []
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if spec.get("nodeName") != node or metadata["namespace"] == namespace:
            continue
        if (pod.get("status") or {}).get("phase") not in _OVER and _asks_for_gpus(spec):
            found.append((str(metadata["namespace"]), str(metadata["name"])))
    return sorted(found)


def _ask(
    inputs: MigInputs, cluster: MigCluster, reporter: Reporter, place: str, found: MigState
) -> None:
    _free(inputs, cluster, reporter, place)
    cluster.take(NODE, _body(inputs.node, {MIG_LABEL: inputs.layout}), manager=MANAGER)
    reporter.note(f"{place}: {found.layout or 'no layout'} → {inputs.layout}")


def _free(inputs: MigInputs, cluster: MigCluster, reporter: Reporter, place: str) -> None:
    held = users(cluster.list(POD), inputs.node, inputs.namespace)
    if held and not inputs.evict:
        names = ", ".join(f"{namespace}/{name}" for namespace, name in held)
        pods = "a pod uses" if len(held) == 1 else f"{len(held)} pods use"
        raise refused(
            place,
            "mig.in-use",
            f"the layout of its GPUs is not changed (layout {inputs.layout!r}): {pods} them and would "
            f"be killed ({names})",
            "wait until they have ended, or say that they may be ended (`evict`)",
        )
    for namespace, name in held:
        reporter.note(f"{place}: ends pod {namespace}/{name}")
        cluster.delete(POD, name, namespace)


def _settled(
    inputs: MigInputs,
    cluster: MigCluster,
    clock: Clock,
    reporter: Reporter,
    place: str,
    before: MigState,
) -> MigState:
    started, began = clock.now(), None
    moved = _is_moved(inputs, before)
    while True:
        now = observe(inputs, cluster)
        if now is None:
            problem = "the node left the cluster"
            raise refused(place, "mig.node-missing", problem, "bring it back, then run again")
        if now.layout == DISABLED != inputs.layout and not before.layout:
            # The operator's first label, set without having seen ours. From here on it leaves labels alone.
            _ask(inputs, cluster, reporter, place, now)
            before, moved = now, _is_moved(inputs, now)
            continue
        moved = moved or now.state != before.state
        changed = moved or before.offered != now.offered
        if changed and now.has(inputs.layout, inputs.expected):
            return now
        _refuse_what_cannot_end_well(inputs, place, now, moved=moved)
        if began is None and (now.state or any(now.offered.values())):
            began = clock.now()
        limit = OPERATOR_SECONDS if began is None else inputs.timeout_seconds
        since = started if began is None else began
        if clock.now() - since + POLL_SECONDS > limit:
            break
        clock.sleep(POLL_SECONDS)
    raise refused(
        place,
        "mig.timeout",
        f"layout {inputs.layout!r} is not done after {limit:g} s: state "
        f"{now.state or 'unset'}, offers {_shown(now.offered)}, expected {_shown(inputs.expected)}",
        f"look at the MIG manager and the device plugin of the node in {inputs.namespace}, then run "
        "again",
    )


def _is_moved(inputs: MigInputs, before: MigState) -> bool:
    """Whether the state is of the new layout; it is of the old one until the MIG manager saw the label."""
    return before.layout == inputs.layout or before.state not in (_SUCCESS, _FAILED)


def _refuse_what_cannot_end_well(
    inputs: MigInputs, place: str, now: MigState, *, moved: bool
) -> None:
    if moved and now.state == _FAILED:
        raise refused(
            place,
            "mig.failed",
            f"the MIG manager could not make layout {inputs.layout!r}",
            f"its log says why: `kubectl -n {inputs.namespace} logs -l app=nvidia-mig-manager "
            f"--field-selector spec.nodeName={inputs.node}`; it tries again when its pod is deleted",
        )
    if now.layout != inputs.layout:
        raise refused(
            place,
            "mig.other-layout",
            f"somebody else changed its layout to {now.layout!r} while {inputs.layout!r} was being "
            "made",
            "find out who labels the node, then run again",
        )


def _body(node: str, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": node}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": NODE.api_version, "kind": NODE.kind, "metadata": metadata}


def _asks_for_gpus(spec: Mapping[str, Any]) -> bool:
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(
        name.startswith(RESOURCE_PREFIX)
        for container in containers
        for name in ((container.get("resources") or {}).get("limits") or {})
    )


def _shown(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {r}" for r, n in sorted(amounts.items())) or "nothing"
