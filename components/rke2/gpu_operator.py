"""The NVIDIA GPU Operator in a cluster, and how it shares the GPUs of each node.

Owns: its namespace, the CustomResourceDefinitions, the operands' ConfigMaps, the Helm release; the MIG layout
and the plugin's label of each node. Does not own: the RuntimeClass `nvidia`, which RKE2's own chart and the
operator both write (a third would be refused as existing); what makes GPUs ready (`GpuReadiness`).
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, NodePatch
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs, ObjectMetaPatchArgs

from components import helm
from components.component import Component
from components.helm import Chart
from components.kubernetes_objects import after, pod_security
from gpuclusters.compat.containerd_places import ContainerdDistribution
from gpuclusters.gpu_operator import mig_node, objects
from gpuclusters.gpu_operator import preflight as gpu_operator_preflight
from gpuclusters.gpu_operator.mig_layout import MigNode
from gpuclusters.gpu_operator.resource import GpuOperatorCrds, GpuOperatorPreflight, MigLayout

TIMEOUT_SECONDS = 900
"""Helm waits for the operator and for node feature discovery; not for operands, whose driver takes longer."""


class GpuOperator(Component, module="rke2"):
    """Owns the release. That GPUs work is another resource's word."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    chart: Chart
    values: Mapping[str, Any]
    """The chart's values as they are; nothing is taken out. The names of `configs` are added."""
    nodes: Sequence[str]
    """Names of the nodes that must get GPUs; looked at before anything is installed."""
    distribution: ContainerdDistribution | None = None
    """Of a cluster that was there; None of one that this program made."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """ConfigMaps by operand: `device-plugin`, `dcgm-metrics` (key `dcgm-metrics.csv`), `mig-parted` (key
    `config.yaml`)."""
    chart_sha256: str = ""
    namespace: str = objects.NAMESPACE
    timeout_seconds: int = TIMEOUT_SECONDS

    triggers: Sequence[str] = field(init=False)
    """Changes whenever something else is installed: for what has to look again then."""

    def declare(self) -> None:
        name, child = self._name, self.child
        if empty := objects.nulls(self.values):
            raise ValueError(
                f"{', '.join(empty)}: null is no value here; leave the key out to have the default"
            )
        values = objects.with_configs(self.values, self.configs)
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
        content = self.chart.content
        asked = gpu_operator_preflight.asked(values, distribution=self.distribution)
        self.triggers = [self.chart.version or content, digest]
        preflight = GpuOperatorPreflight(
            f"{name}-preflight",
            cluster=self.cluster,
            kubeconfig=self.kubeconfig,
            version=self.chart.release,
            nodes=sorted(self.nodes),
            namespace=self.namespace,
            values_digest=digest,
            **asked,
            opts=child,
        )
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(name=self.namespace, labels=pod_security("privileged")),
            opts=after(preflight, opts=child),
        ).metadata.name
        definitions = GpuOperatorCrds(
            f"{name}-crds",
            cluster=self.cluster,
            kubeconfig=self.kubeconfig,
            reference=self.chart.reference,
            version=self.chart.version or "",
            repository=self.chart.repository or "",
            content=content,
            sha256=self.chart_sha256,
            with_nfd=asked["with_nfd"],
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
            for config, data in self.configs.items()
        ]
        helm.install(
            f"{name}-release",
            self.chart,
            after(definitions, *configs, opts=child),
            release=objects.RELEASE,
            namespace=namespace,
            values=values,
            timeout_seconds=self.timeout_seconds,
            skip_crds=True,
        )


class GpuSharing(Component, module="rke2"):
    """Each node by itself: another layout of one touches no other, and one without a word is left alone."""

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

    def declare(self) -> None:
        child = self.child
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
            for node, config in self.plugin_configs.items()
        }
        for node, one in self.mig.items():
            MigLayout(
                f"{node}-mig",
                cluster=self.cluster,
                kubeconfig=self.kubeconfig,
                node=node,
                layout=one.layout,
                expected=dict(one.expected),
                evict=self.evict,
                adopt=node in self.adopt or None,
                namespace=self.namespace,
                timeout_seconds=self.mig_timeout_seconds,
                # The plugin's configuration decides what the slices are called.
                opts=after(*([labels[node]] if node in labels else []), opts=child),
            )
