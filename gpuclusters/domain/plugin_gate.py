"""The gate behind the device plugin: every node offers its GPUs, or an error says which does not and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import ladder_nodes, patient
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.ladder import Rung
from gpuclusters.domain.proof import Check, Outcome
from gpuclusters.domain.proof_port import JobCluster
from gpuclusters.domain.refusals import RefusalError

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


def look(inputs: GateInputs, cluster: JobCluster) -> dict[str, Any]:
    """The outputs as of now."""
    snapshot = ladder_nodes.read(cluster, inputs.expected)
    checks = list(ladder_nodes.allocatable(snapshot, inputs.expected))
    return {
        "allocatable": {
            name: ladder_nodes.offered(snapshot.nodes.get(name, {})) for name in inputs.expected
        },
        "missing": list(_lines(checks)),
    }


def wait(
    inputs: GateInputs, cluster: JobCluster, clock: Clock, reporter: Reporter
) -> Mapping[str, Any]:
    """Wait until every node offers what it must.

    Raises:
        RefusalError: not in time; names every node, the rung, and what its plugin says.
        AdapterError: the cluster is not reached.
    """
    told: dict[str, Any] = {}

    def missing() -> Sequence[str]:
        told.update(look(inputs, cluster))
        return list(told["missing"])

    left = patient.until(
        missing,
        place=cluster.place,
        timeout_seconds=inputs.timeout_seconds,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
    )
    if not left:
        return told
    text = "".join(f"\n  - {line}" for line in left)
    raise RefusalError(
        cluster.place,
        f"rung {Rung.ALLOCATABLE.value} does not hold after {inputs.timeout_seconds} s:{text}\n ",
        "correct what is named and run `up` again, which goes on from here",
    )


def _lines(checks: Sequence[Check]) -> Sequence[str]:
    return [
        f"node {check.subject}: {check.said}"
        for check in checks
        if check.outcome is not Outcome.PASSED
    ]
