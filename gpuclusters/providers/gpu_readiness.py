"""GPUs that are ready: on every node, as many as were declared, found good by the operator's validator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import gpu_readiness_wait
from gpuclusters.domain.gpu_operator import NAMESPACE
from gpuclusters.domain.gpu_readiness_wait import DEFAULT_TIMEOUT_SECONDS, ReadinessInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects


class GpuReadinessProvider(KeptProvider[ReadinessInputs]):
    """Made when all GPUs are ready; tells by a refresh which are no more."""

    model = ReadinessInputs
    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: ReadinessInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Wait."""
        from gpuclusters.adapters.gpu_readiness import PatientCluster
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        cluster = PatientCluster(inputs.kubeconfig)
        return dict(gpu_readiness_wait.wait(inputs, cluster, SystemClock(), StderrReporter()))

    def observe(self, inputs: ReadinessInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The GPUs as they are now."""
        snapshot = gpu_readiness_wait.read(_cluster(inputs), inputs.namespace)
        return Live(gpu_readiness_wait.outputs(snapshot, inputs), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found fewer GPUs, or a node that is not ready."""
        return bool(outputs.get("missing"))

    def remove(self, inputs: ReadinessInputs, before: Properties) -> None:
        """Nothing was made."""


def _cluster(inputs: ReadinessInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


class GpuReadiness(Resource, module="gpu", name="GpuReadiness"):
    """A gate: what depends on it finds the GPUs that were declared."""

    allocatable: pulumi.Output[Mapping[str, Mapping[str, int]]]
    """By node and resource, what the node offers."""
    reason: pulumi.Output[str]
    """Of the ClusterPolicy's condition; `Reconciled` after `up`."""
    missing: pulumi.Output[Sequence[str]]
    """What a refresh found not ready, with what blocks it; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        expected: pulumi.Input[Mapping[str, Mapping[str, int]]],
        namespace: pulumi.Input[str] = NAMESPACE,
        timeout_seconds: pulumi.Input[float] = DEFAULT_TIMEOUT_SECONDS,
        triggers: pulumi.Input[Sequence[str]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the gate.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may read nodes, policies, and the operator's namespace; kept as a
                secret.
            expected: by node and resource, how many must be allocatable.
            namespace: of the operator.
            timeout_seconds: how long to wait, all nodes together.
            triggers: whatever makes another look necessary, such as `GpuOperator.triggers`.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "expected": expected,
            "namespace": namespace,
            "timeout_seconds": timeout_seconds,
            "triggers": triggers,
            "allocatable": None,
            "reason": None,
            "missing": None,
        }
        super().__init__(name, properties, opts)
