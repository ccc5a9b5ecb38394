"""GPUs of a rootless cluster: NVIDIA's device plugin, the runtime class, metrics if wanted, and the gate.

Owns: the objects in kube-system, and the wait for every node's GPUs. Deliberately does not own: what makes
GPUs visible inside a node (its CDI specification, its default runtime), which belongs to the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.node.v1 import RuntimeClass

from gpuclusters.domain import device_plugin_manifest as manifest
from gpuclusters.domain.usernetes_versions import VersionSet
from gpuclusters.proof.plugin_gate import DEFAULT_TIMEOUT_SECONDS
from gpuclusters.proof.resource import PluginGate


@dataclass(frozen=True, kw_only=True)
class GpuPluginArgs:
    """Which cluster, which versions, and how many GPUs must come of it."""

    cluster: str
    """Name of the cluster."""
    kubeconfig: pulumi.Input[str]
    versions: VersionSet
    nodes: Mapping[str, int]
    """GPUs by node."""
    triggers: Sequence[pulumi.Input[str]] = ()
    """What makes the GPUs be waited for anew: which GPUs each node has."""
    metrics: bool = False
    """Whether the DCGM exporter runs too."""
    fail_on_init_error: bool = True
    """Whether a plugin that finds no GPUs ends; one that does not looks healthy and offers nothing."""
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    """For the GPUs of all nodes together."""
    requires: Sequence[pulumi.Resource] = ()
    """The nodes, joined."""


class GpuPlugin(pulumi.ComponentResource):
    """There when every node offers its GPUs. The provider for the cluster comes with the options."""

    ready: Sequence[pulumi.Resource]
    """What to depend on: the gate."""
    allocatable: pulumi.Output[Mapping[str, int]]
    """GPUs by node."""

    def __init__(
        self, name: str, args: GpuPluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:usernetes:GpuPlugin", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self, depends_on=list(args.requires))
        image = args.versions.device_plugin_image
        plugin = manifest.device_plugin(image, fail_on_init_error=args.fail_on_init_error)
        made: list[pulumi.Resource] = [
            RuntimeClass(
                f"{name}-runtime-class",
                metadata=manifest.runtime_class()["metadata"],
                handler=manifest.RUNTIME_CLASS,
                opts=inside,
            ),
            DaemonSet(
                f"{name}-device-plugin",
                metadata=plugin["metadata"],
                spec=plugin["spec"],
                opts=inside,
            ),
        ]
        if args.metrics:
            made += self._exporter(name, args, inside)
        gate = PluginGate(
            f"{name}-gate",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            expected=dict(args.nodes),
            timeout_seconds=args.timeout_seconds,
            triggers=[image, args.versions.container_toolkit, *args.triggers],
            opts=pulumi.ResourceOptions(parent=self, depends_on=made),
        )
        self.ready = (gate,)
        self.allocatable = gate.allocatable
        self.register_outputs({"allocatable": gate.allocatable})

    def _exporter(
        self, name: str, args: GpuPluginArgs, inside: pulumi.ResourceOptions
    ) -> Sequence[pulumi.Resource]:
        exporter = manifest.dcgm_exporter(args.versions.dcgm_exporter_image)
        service = manifest.exporter_service()
        return [
            DaemonSet(
                f"{name}-exporter",
                metadata=exporter["metadata"],
                spec=exporter["spec"],
                opts=inside,
            ),
            Service(
                f"{name}-exporter-service",
                metadata=service["metadata"],
                spec=service["spec"],
                opts=inside,
            ),
        ]
