"""Wait until GPUs are ready, for a time that is bounded, through restarts of the API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.domain import gpu_readiness
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.gpu_operator import CLUSTER_POLICY, DAEMON_SET, EVENT, NAMESPACE
from gpuclusters.domain.gpu_readiness import Snapshot
from gpuclusters.domain.ports import ClusterObjects
from gpuclusters.domain.tenancy_objects import NODE, POD

DEFAULT_TIMEOUT_SECONDS = 2400.0
"""A driver that is compiled takes up to 20 minutes by the chart's own probe, nodes one after the other."""
POLL_SECONDS = 3.0
LOOKS = 2
"""Looks in a row that must find it ready: between two reconciliations the policy still tells of the last."""


class ReadinessInputs(BaseModel):
    """Inputs of the wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    expected: dict[str, dict[str, int]] = Field(min_length=1)
    """By node and resource, how many must be allocatable: `{"gpu-01": {"nvidia.com/gpu": 8}}`."""
    namespace: str = NAMESPACE
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=14_400)
    triggers: tuple[str, ...] = ()
    """Whatever makes another look necessary when it changes."""

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

    @property
    def natural_id(self) -> str:
        """`cluster/gpus`."""
        return f"{self.cluster}/gpus"


class Watched(Protocol):
    """A cluster whose API server may be away."""

    @property
    def place(self) -> str:
        """As errors name it."""

    def snapshot(self, namespace: str) -> Snapshot | str:
        """What it shows; the reason if nobody answers."""


def read(cluster: ClusterObjects, namespace: str) -> Snapshot:
    """What the cluster shows now."""
    return Snapshot(
        policies=cluster.list(CLUSTER_POLICY),
        nodes={str(node["metadata"]["name"]): node for node in cluster.list(NODE)},
        daemon_sets=cluster.list(DAEMON_SET, namespace),
        pods=cluster.list(POD, namespace),
        events=sorted(
            cluster.list(EVENT, namespace), key=lambda event: event.get("lastTimestamp") or ""
        ),
    )


def outputs(snapshot: Snapshot, inputs: ReadinessInputs) -> dict[str, Any]:
    """What the resource tells."""
    policy = gpu_readiness.active_policy(snapshot.policies)
    return {
        "allocatable": gpu_readiness.allocatable(snapshot, inputs.expected),
        "reason": gpu_readiness.reason(policy),
        "drift": [one.to_output() for one in gpu_readiness.missing(snapshot, inputs.expected)],
    }


def wait(
    inputs: ReadinessInputs, cluster: Watched, clock: Clock, reporter: Reporter
) -> Mapping[str, Any]:
    """Wait until every node has what it must.

    An API server that does not answer is waited for too: on a single server it goes away for about a minute
    when the toolkit tells containerd, because that restarts RKE2.

    Raises:
        Refused: not in time; says everything that is missing and what blocks it.
    """
    told: Mapping[str, Any] = {}

    def look() -> Sequence[Finding]:
        nonlocal told
        shown = cluster.snapshot(inputs.namespace)
        if isinstance(shown, str):
            problem = f"the API server does not answer ({shown})"
            return [Finding("gpu.api-silent", problem, level=Level.REPAIR)]
        told = outputs(shown, inputs)
        return gpu_readiness.missing(shown, inputs.expected)

    left = poll(
        look,
        target=cluster.place,
        timeout_seconds=inputs.timeout_seconds,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
        looks=LOOKS,
    )
    if left:
        raise late(cluster.place, inputs.timeout_seconds, left)
    return told


def late(target: str, seconds: float, left: Sequence[Finding]) -> Refused:
    """The error for what did not come in time."""
    remedy = "correct what blocks it and run `up` again, which goes on from here"
    return Refused(
        target,
        [
            replace(f, problem=f"not ready after {seconds:g} s: {f.problem}", remedy=remedy)
            for f in left
        ],
    )
