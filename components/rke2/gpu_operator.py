"""The NVIDIA GPU Operator in a cluster, and how it shares the GPUs of each node.

Owns: its namespace, the CustomResourceDefinitions, the operands' ConfigMaps, the Helm release; the MIG layout
and the plugin's label of each node. Does not own: the RuntimeClass `nvidia`, which RKE2's own chart and the
operator both write (a third would be refused as existing); what makes GPUs ready (`GpuReadiness`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, NodePatch
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs, ObjectMetaPatchArgs

from components import helm
from components.helm import Chart
from components.kubernetes_objects import after, pod_security
from gpuclusters.gpu_operator import mig_node, objects
from gpuclusters.gpu_operator import preflight as gpu_operator_preflight
from gpuclusters.gpu_operator.mig_layout import MigNode
from gpuclusters.gpu_operator.resource import GpuOperatorCrds, GpuOperatorPreflight, MigLayout

TIMEOUT_SECONDS = 900
"""Helm waits for the operator and for node feature discovery; not for operands, whose driver takes longer."""


@dataclass(frozen=True, kw_only=True)
class GpuOperatorArgs:
    cluster: str
    kubeconfig: pulumi.Input[str]
    chart: Chart
    values: Mapping[str, Any]
    """The chart's values as they are; nothing is taken out. The names of `configs` are added."""
    nodes: Sequence[str]
    """Names of the nodes that must get GPUs; looked at before anything is installed."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """ConfigMaps by operand: `device-plugin`, `dcgm-metrics` (key `dcgm-metrics.csv`), `mig-parted` (key
    `config.yaml`)."""
    chart_sha256: str = ""
    namespace: str = objects.NAMESPACE
    timeout_seconds: int = TIMEOUT_SECONDS


class GpuOperator(pulumi.ComponentResource):
    """Owns the release. That GPUs work is another resource's word."""

    triggers: Sequence[str]
    """Changes whenever something else is installed: for what has to look again then."""

    def __init__(
        self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:GpuOperator", name, None, opts)
        if empty := objects.nulls(args.values):
            raise ValueError(
                f"{', '.join(empty)}: null is no value here; leave the key out to have the default"
            )
        child = pulumi.ResourceOptions(parent=self)
        values = objects.with_configs(args.values, args.configs)
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
        content = args.chart.content
        with_nfd = bool((values.get("nfd") or {}).get("enabled", True))
        operands, workers = gpu_operator_preflight.tolerations(values)
        self.triggers = [args.chart.version or content, digest]
        preflight = GpuOperatorPreflight(
            f"{name}-preflight",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            version=args.chart.release,
            nodes=sorted(args.nodes),
            namespace=args.namespace,
            with_nfd=with_nfd,
            cdi=bool((values.get("cdi") or {}).get("enabled", True)),
            tolerations=operands,
            nfd_tolerations=workers,
            values_digest=digest,
            opts=child,
        )
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(name=args.namespace, labels=pod_security("privileged")),
            opts=after(preflight, opts=child),
        ).metadata.name
        definitions = GpuOperatorCrds(
            f"{name}-crds",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            reference=args.chart.reference,
            version=args.chart.version or "",
            repository=args.chart.repository or "",
            content=content,
            sha256=args.chart_sha256,
            with_nfd=with_nfd,
            opts=after(preflight, opts=child),
        )
        configs = [
            ConfigMap(
                f"{name}-{config}",
                metadata={"name": objects.config_map_name(config, data), "namespace": namespace},
                data=dict(data),
                # Pods that still mount the old one go on; it goes when the release names the new one.
                opts=child,
            )
            for config, data in args.configs.items()
        ]
        helm.install(
            f"{name}-release",
            args.chart,
            after(definitions, *configs, opts=child),
            release=objects.RELEASE,
            namespace=namespace,
            values=values,
            timeout_seconds=args.timeout_seconds,
            skip_crds=True,
        )
        self.register_outputs({})


@dataclass(frozen=True, kw_only=True)
class GpuSharingArgs:
    """What is done to which node; a node that is in neither map is left alone."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    mig: Mapping[str, MigNode] = field(default_factory=dict)
    plugin_configs: Mapping[str, str] = field(default_factory=dict)
    """By node, the key in the device plugin's ConfigMap: time-slicing or MPS."""
    adopt: Collection[str] = ()
    """Nodes whose GPUs may be divided already: their layout is taken over, if it is this one."""
    evict: bool = False
    """Whether a change of layout may end the pods that use the node's GPUs."""
    mig_timeout_seconds: float = mig_node.DEFAULT_TIMEOUT_SECONDS
    namespace: str = objects.NAMESPACE


class GpuSharing(pulumi.ComponentResource):
    """Each node by itself: another layout of one pool touches no other node."""

    def __init__(
        self, name: str, args: GpuSharingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:GpuSharing", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        labels = {
            node: NodePatch(
                f"{node}-device-plugin",
                metadata=ObjectMetaPatchArgs(
                    name=node,
                    labels={objects.PLUGIN_CONFIG_LABEL: config},
                    # The label is the operator's as well: it is ours while this resource exists.
                    annotations={"pulumi.com/patchForce": "true"},
                ),
                opts=child,
            )
            for node, config in args.plugin_configs.items()
        }
        for node, one in args.mig.items():
            MigLayout(
                f"{node}-mig",
                cluster=args.cluster,
                kubeconfig=args.kubeconfig,
                node=node,
                layout=one.layout,
                expected=dict(one.expected),
                evict=args.evict,
                adopt=node in args.adopt or None,
                namespace=args.namespace,
                timeout_seconds=args.mig_timeout_seconds,
                # The plugin's configuration decides what the slices are called.
                opts=after(*([labels[node]] if node in labels else []), opts=child),
            )
        self.register_outputs({})
