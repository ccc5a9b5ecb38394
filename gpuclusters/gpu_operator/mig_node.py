"""The MIG layout of one node: asked for by a label, done by the operator's MIG manager.

The MIG manager follows the label `nvidia.com/mig.config` and answers in
`nvidia.com/mig.config.state` with pending, rebooting, success or failed (NVIDIA GPU Operator
documentation, MIG). To divide a GPU anew it ends everything that uses the GPU, so that this refuses
while pods have GPUs of the node. The label has two owners: the operator sets `all-disabled` where
it finds none (gpu-operator v26.7.0, nodelabeling_controller.go), so ours is written with force. The
operator decides by its cache, which may be older than our label: on a node that had no label, its
first one may still overwrite ours, once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from gpuclusters.core.converge import Capability, Clock, Reporter, Step, overdue, poll
from gpuclusters.core.custom_resource import ClusterInputs, Name
from gpuclusters.core.finding import Finding, Level, Refused, blocked, refused
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.mig_layout import DISABLED
from gpuclusters.gpu_operator.objects import MIG_LABEL
from gpuclusters.gpu_operator.pods import is_over
from gpuclusters.tenancy.objects import NODE, POD

MANAGER = "gpu-clusters-mig"
DEFAULT_TIMEOUT_SECONDS = 900.0
OPERATOR_SECONDS = 2400.0
"""How long a node may take until it offers anything of NVIDIA: a driver that is compiled takes 20 minutes."""
POLL_SECONDS = 2.0
_SUCCESS, _FAILED = "success", "failed"


class MigInputs(ClusterInputs):
    called = "{0.node}/mig"

    node: Name
    layout: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
    """Name of a layout in the MIG manager's configuration, such as `all-1g.10gb`."""
    expected: dict[str, int] = Field(min_length=1)
    """By resource, what the node must offer afterwards."""
    evict: bool = False
    namespace: str = objects.NAMESPACE
    """Of the operator, whose own pods do not count."""
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=7200)
    """For the layout alone: it counts from when the node's operands work."""
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class MigState:
    layout: str
    state: str
    offered: Mapping[str, int]

    def __str__(self) -> str:
        return f"state {self.state or 'unset'}, offers {_shown(self.offered)}"

    def has(self, inputs: MigInputs) -> bool:
        """Whether it is what is declared, done, and offers what it should."""
        offers = all(self.offered.get(r, 0) == n for r, n in inputs.expected.items())
        return self.layout == inputs.layout and self.state == _SUCCESS and offers

    def outputs(self) -> dict[str, Any]:
        return {"current": self.layout, "state": self.state, "allocatable": dict(self.offered)}


@dataclass(frozen=True, slots=True)
class MigNode(Capability[MigState | None]):
    """A node that is brought to its layout."""

    inputs: MigInputs
    cluster: ClusterObjects
    clock: Clock
    reporter: Reporter

    @property
    def target(self) -> str:
        return f"{self.cluster.target}: node {self.inputs.node}"

    @property
    def steps(self) -> Mapping[str, Step[MigState | None]]:
        return {"divide": Step(self._divide)}

    def observe(self) -> MigState | None:
        node = self.cluster.get(NODE, self.inputs.node)
        if node is None:
            return None
        labels = objects.labels(node)
        return MigState(
            str(labels.get(MIG_LABEL, "")),
            str(labels.get(objects.MIG_STATE_LABEL, "")),
            {r: n for r, n in objects.offered(node).items() if n or r in self.inputs.expected},
        )

    def findings(self, live: MigState | None) -> Sequence[Finding]:
        if live is None:
            return [blocked("mig.node-missing")]
        if live.has(self.inputs):
            return []
        problem = f"{live}, expected {_shown(self.inputs.expected)}"
        if live.layout != self.inputs.layout:
            problem = f"{self._divided(live)} ({problem})"
        return [Finding("mig.layout-changed", problem, level=Level.REPAIR, step="divide")]

    def differences(self, live: MigState | None) -> Sequence[Finding]:
        if live is None or live.layout in ("", self.inputs.layout):
            return []
        return [Finding("mig.layout-changed", self._divided(live))]

    def outputs(self, live: MigState | None) -> Mapping[str, Any]:
        return live.outputs() if live else {}

    def is_absent(self, live: MigState | None) -> bool:
        return live is None

    def remove(self) -> None:
        """Give the label up: the operator puts its own default there. Refuses while pods use the GPUs."""
        live = self.observe()
        if live is not None and live.layout == self.inputs.layout:
            self._free()
            self._label({})

    def users(self) -> list[tuple[str, str]]:
        """Namespace and name of the pods that have GPUs of the node, the operator's own left out."""
        pods = self.cluster.list(POD)
        here = (p for p in pods if (p.get("spec") or {}).get("nodeName") == self.inputs.node)
        using = (p["metadata"] for p in here if not is_over(p) and _asks_for_gpus(p["spec"]))
        named = ((str(one["namespace"]), str(one["name"])) for one in using)
        return sorted(one for one in named if one[0] != self.inputs.namespace)

    def _divided(self, live: MigState) -> str:
        found = live.layout or "nothing says how"
        return f"its GPUs are divided as {found} instead of {self.inputs.layout}"

    def _divide(self, live: MigState | None, _findings: Sequence[Finding]) -> None:
        if live is None:
            return
        if live.layout != self.inputs.layout:
            self._ask(live)
        watch = _Watch(self, live, moved=self._is_moved(live))
        # Until the node's operands work nothing follows the label.
        for seconds, look in (
            (OPERATOR_SECONDS, watch.starts),
            (self.inputs.timeout_seconds, watch.look),
        ):
            left = poll(look, self.target, seconds, POLL_SECONDS, self.clock, self.reporter)
            if left:
                late = f"layout {self.inputs.layout!r} is not done after {seconds:g} s"
                raise Refused(self.target, overdue(left, late))

    def _is_moved(self, live: MigState) -> bool:
        """Whether the state is of the new layout: until the MIG manager saw the label it is not."""
        return live.layout == self.inputs.layout or live.state not in (_SUCCESS, _FAILED)

    def _ask(self, live: MigState) -> None:
        self._free()
        self._label({MIG_LABEL: self.inputs.layout})
        self.reporter.note(f"{self.target}: {live.layout or 'no layout'} → {self.inputs.layout}")

    def _free(self) -> None:
        held = self.users()
        if held and not self.inputs.evict:
            names = ", ".join(map("/".join, held))
            pods = "a pod uses" if len(held) == 1 else f"{len(held)} pods use"
            said = {"layout": self.inputs.layout, "pods": pods, "names": names}
            raise refused(self.target, "mig.in-use", **said)
        for namespace, name in held:
            self.reporter.note(f"{self.target}: ends pod {namespace}/{name}")
            self.cluster.delete(POD, name, namespace)

    def _label(self, labels: Mapping[str, str]) -> None:
        metadata = {"name": self.inputs.node} | ({"labels": dict(labels)} if labels else {})
        body = {"apiVersion": NODE.api_version, "kind": NODE.kind, "metadata": metadata}
        self.cluster.take(NODE, body, manager=MANAGER)


@dataclass(slots=True)
class _Watch:
    """What the MIG manager does about a layout."""

    node: MigNode
    before: MigState
    moved: bool
    """Whether the state that is shown is of the new layout."""
    begun: bool = False

    def starts(self) -> Sequence[Finding]:
        """As `look`, until the node shows anything of NVIDIA."""
        found = self.look()
        return () if self.begun and all(f.level is Level.REPAIR for f in found) else found

    def look(self) -> Sequence[Finding]:
        """What is not done, or cannot end well."""
        node, inputs, now = self.node, self.node.inputs, self.node.observe()
        if now is None:
            return [blocked("mig.node-missing", case="left")]
        if now.layout == DISABLED != inputs.layout and not self.before.layout:
            # The operator's first label, set without having seen ours. From here on it leaves labels alone.
            node._ask(now)
            self.before, self.moved = now, node._is_moved(now)
            return [self._waits(now)]
        self.moved = self.moved or now.state != self.before.state
        self.begun = self.begun or bool(now.state or any(now.offered.values()))
        if (self.moved or self.before.offered != now.offered) and now.has(inputs):
            return ()
        if self.moved and now.state == _FAILED:
            return [blocked("mig.failed", inputs=inputs)]
        if now.layout != inputs.layout:
            return [blocked("mig.other-layout", layout=now.layout)]
        return [self._waits(now)]

    def _waits(self, now: MigState) -> Finding:
        inputs = self.node.inputs
        problem = f"{now}, expected {_shown(inputs.expected)}"
        remedy = f"look at the node's MIG manager and device plugin in {inputs.namespace}, then run again"
        return Finding("mig.timeout", problem, remedy, level=Level.REPAIR)


def _asks_for_gpus(spec: Mapping[str, Any]) -> bool:
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    limits = ((one.get("resources") or {}).get("limits") or {} for one in containers)
    return any(name.startswith(objects.RESOURCE_PREFIX) for one in limits for name in one)


def _shown(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {r}" for r, n in sorted(amounts.items())) or "nothing"
