"""The gate after the GPU Operator: what depends on it finds the GPUs that were declared.

Owns: the wait. Deliberately does not own: anything in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.readiness import DEFAULT_TIMEOUT_SECONDS
from gpuclusters.gpu_operator.resource import GpuReadiness


@dataclass(frozen=True, kw_only=True)
class GpuReadyArgs:
    """Which GPUs must be there."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    expected: Mapping[str, Mapping[str, int]]
    """By node and resource."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    namespace: str = objects.NAMESPACE
    triggers: Sequence[str] = ()
    """As `GpuOperator.triggers`: what was installed anew is looked at anew."""
    requires: Sequence[pulumi.Resource] = ()


class GpuReady(pulumi.ComponentResource):
    """The gate: what depends on it finds the GPUs that were declared."""

    ready: Sequence[pulumi.Resource]
    allocatable: pulumi.Output[Mapping[str, Mapping[str, int]]]
    """By node and resource."""

    def __init__(
        self, name: str, args: GpuReadyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:GpuReady", name, None, opts)
        gate = GpuReadiness(
            f"{name}-gate",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            expected={node: dict(amounts) for node, amounts in args.expected.items()},
            namespace=args.namespace,
            timeout_seconds=args.timeout_seconds,
            triggers=list(args.triggers),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.ready = [gate]
        self.allocatable = gate.allocatable
        self.register_outputs({"allocatable": gate.allocatable})
