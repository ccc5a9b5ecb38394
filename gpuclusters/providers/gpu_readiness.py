"""GPUs that are ready: on every node, as many as were declared, found good by the operator's validator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuclusters.domain import gpu_readiness_wait
from gpuclusters.domain.gpu_readiness_wait import ReadinessInputs
from gpuclusters.providers.cluster import ClusterProvider
from gpuclusters.providers.kept import Live, Properties
from gpuclusters.providers.resource import ModelResource


class GpuReadinessProvider(ClusterProvider[ReadinessInputs]):
    """Made when all GPUs are ready; tells by a refresh which are no more."""

    model = ReadinessInputs

    def ensure(self, inputs: ReadinessInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Wait."""
        from gpuclusters.adapters.gpu_readiness import PatientCluster
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        cluster = PatientCluster(inputs.kubeconfig)
        return dict(gpu_readiness_wait.wait(inputs, cluster, SystemClock(), StderrReporter()))

    def observe(self, inputs: ReadinessInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The GPUs as they are now."""
        snapshot = gpu_readiness_wait.read(self.cluster(inputs), inputs.namespace)
        return Live(gpu_readiness_wait.outputs(snapshot, inputs), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found fewer GPUs, or a node that is not ready."""
        return bool(outputs.get("drift"))


class GpuReadiness(ModelResource, module="gpu", name="GpuReadiness"):
    """A gate: what depends on it finds the GPUs that were declared."""

    provider = GpuReadinessProvider

    allocatable: pulumi.Output[Mapping[str, Mapping[str, int]]]
    """By node and resource, what the node offers."""
    reason: pulumi.Output[str]
    """Of the ClusterPolicy's condition; `Reconciled` after `up`."""
    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh: what is not ready, with what blocks it; empty after `up`."""
