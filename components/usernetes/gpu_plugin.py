"""GPUs of a rootless cluster: NVIDIA's device plugin, the runtime class, metrics if wanted, and the gate.

Owns: the objects in kube-system, and the wait for every node's GPUs. Deliberately does not own: what makes
GPUs visible inside a node (its CDI specification, its default runtime), which belongs to the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.node.v1 import RuntimeClass

from components.kubernetes_objects import after
from gpuclusters.compat.usernetes_versions import VersionSet
from gpuclusters.proof.nodes import DEFAULT_TIMEOUT_SECONDS
from gpuclusters.proof.resource import PluginGate
from gpuclusters.usernetes import device_plugin as manifest


@dataclass(frozen=True, kw_only=True)
class GpuPluginArgs:
    """Which cluster, which versions, and how many GPUs must come of it."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    versions: VersionSet
    nodes: Mapping[str, int]
    triggers: Sequence[pulumi.Input[str]] = ()
    """What makes the GPUs be waited for anew: which GPUs each node has."""
    metrics: bool = False
    """Whether the DCGM exporter runs too."""
    fail_on_init_error: bool = True
    """Whether a plugin that finds no GPUs ends; one that does not looks healthy and offers nothing."""
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    """For the GPUs of all nodes together."""


class GpuPlugin(pulumi.ComponentResource):
    """There when every node offers its GPUs. The provider for the cluster comes with the options."""

    allocatable: pulumi.Output[Mapping[str, int]]

    def __init__(
        self, name: str, args: GpuPluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:usernetes:GpuPlugin", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        image = args.versions.device_plugin_image
        plugin = manifest.device_plugin(image, fail_on_init_error=args.fail_on_init_error)
        made: list[pulumi.Resource] = [
            RuntimeClass(
                f"{name}-runtime-class",
                metadata=manifest.runtime_class()["metadata"],
                handler=manifest.RUNTIME_CLASS,
                opts=child,
            ),
            DaemonSet(f"{name}-device-plugin", **_parts(plugin), opts=child),
        ]
        if args.metrics:
            exporter = manifest.dcgm_exporter(args.versions.dcgm_exporter_image)
            service = _parts(manifest.exporter_service())
            made += [
                DaemonSet(f"{name}-exporter", **_parts(exporter), opts=child),
                Service(f"{name}-exporter-service", **service, opts=child),
            ]
        gate = PluginGate(
            f"{name}-gate",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            expected=dict(args.nodes),
            timeout_seconds=args.timeout_seconds,
            triggers=[image, args.versions.container_toolkit, *args.triggers],
            opts=after(*made, opts=child),
        )
        self.allocatable = gate.allocatable
        self.register_outputs({"allocatable": gate.allocatable})


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    return {part: document[part] for part in ("metadata", "spec")}
