"""The gate behind the device plugin: every node offers its GPUs, or an error says which does not and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level
from gpuclusters.domain.custom_resource import Name
from gpuclusters.gpu_operator.readiness import late
from gpuclusters.proof import ladder_nodes
from gpuclusters.proof.checks import Outcome
from gpuclusters.proof.namespace import JobCluster

DEFAULT_TIMEOUT_SECONDS = 600
"""The plugin's image is small; nodes that have just joined pull it through their own network first."""
POLL_SECONDS = 2.0


class GateInputs(BaseModel):
    """Inputs of the wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    expected: dict[Name, int] = Field(min_length=1)
    """GPUs by node."""
    timeout_seconds: int = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=14_400)
    triggers: tuple[str, ...] = ()
    """Whatever makes another look necessary when it changes."""

    @property
    def natural_id(self) -> str:
        """`cluster/device-plugin`."""
        return f"{self.cluster}/device-plugin"


def look(inputs: GateInputs, cluster: JobCluster) -> tuple[dict[str, int], list[Finding]]:
    """GPUs that each node offers now, and what is missing."""
    snapshot = ladder_nodes.read(cluster, inputs.expected)
    offered = {name: ladder_nodes.offered(snapshot.nodes.get(name, {})) for name in inputs.expected}
    missing = [
        Finding(
            "gpu.plugin",
            f"node {check.subject}: {check.said}",
            path=(check.subject,),
            level=Level.REPAIR,
        )
        for check in ladder_nodes.allocatable(snapshot, inputs.expected)
        if check.outcome is not Outcome.PASSED
    ]
    return offered, missing


def outputs(inputs: GateInputs, cluster: JobCluster) -> dict[str, Any]:
    """What the resource tells, as of now."""
    offered, missing = look(inputs, cluster)
    return {"allocatable": offered, "drift": [one.to_output() for one in missing]}


def wait(
    inputs: GateInputs, cluster: JobCluster, clock: Clock, reporter: Reporter
) -> Mapping[str, Any]:
    """Wait until every node offers what it must; answers the outputs.

    Raises:
        Refused: not in time; names every node, and what its plugin says.
        AdapterError: the cluster is not reached.
    """
    left = poll(
        lambda: look(inputs, cluster)[1],
        target=cluster.target,
        timeout_seconds=inputs.timeout_seconds,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
    )
    if left:
        raise late(cluster.target, inputs.timeout_seconds, left)
    return {"allocatable": dict(inputs.expected), "drift": []}
