"""How the GPUs of a cluster are shared: divided by MIG, or handed out several times, by node.

Owns: the layout of each node with MIG, the label by which the device plugin chooses its configuration.
Deliberately does not own: the device plugin's ConfigMap (`GpuOperator`, whose release names it), the strategy
of the whole cluster (a value of the chart).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes.core.v1 import NodePatch
from pulumi_kubernetes.meta.v1 import ObjectMetaPatchArgs

from gpuclusters.gpu_operator import mig_node, objects
from gpuclusters.gpu_operator.resource import MigLayout


@dataclass(frozen=True, kw_only=True)
class MigNode:
    """The layout of one node."""

    layout: str
    """As the MIG manager's configuration calls it, such as `all-1g.10gb`."""
    expected: Mapping[str, int]
    """By resource, what the node offers then: `nvidia.com/mig-1g.10gb: 56`, or with strategy single
    `nvidia.com/gpu: 56`."""


@dataclass(frozen=True, kw_only=True)
class GpuSharingArgs:
    """What is done to which node; a node that is in neither map is left alone."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    mig: Mapping[str, MigNode] = field(default_factory=dict)
    """By node."""
    plugin_configs: Mapping[str, str] = field(default_factory=dict)
    """By node, the key in the device plugin's ConfigMap: time-slicing or MPS."""
    adopt: Collection[str] = ()
    """Nodes whose GPUs may be divided already: their layout is taken over, if it is this one."""
    evict: bool = False
    """Whether a change of layout may end the pods that use the node's GPUs."""
    mig_timeout_seconds: float = mig_node.DEFAULT_TIMEOUT_SECONDS
    namespace: str = objects.NAMESPACE
    requires: Sequence[pulumi.Resource] = ()
    """The operator's release: without it nobody follows the labels."""


class GpuSharing(pulumi.ComponentResource):
    """Each node by itself: another layout of one pool touches no other node."""

    ready: Sequence[pulumi.Resource]
    """What to depend on: layouts are done, labels are set."""

    def __init__(
        self, name: str, args: GpuSharingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:GpuSharing", name, None, opts)
        both = sorted(args.mig.keys() & args.plugin_configs.keys())
        child = pulumi.ResourceOptions(parent=self, depends_on=list(args.requires))
        labels: dict[str, NodePatch] = {
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
        layouts = [
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
                opts=pulumi.ResourceOptions(
                    parent=self,
                    depends_on=[*args.requires, *([labels[node]] if node in both else ())],
                ),
            )
            for node, one in args.mig.items()
        ]
        self.ready = [*labels.values(), *layouts]
        self.register_outputs({})
