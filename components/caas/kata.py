"""Kata on the machines, and the runtime class, which must be known at preview and outlive the chart."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pulumi
from pulumi_command import remote
from pulumi_kubernetes.core.v1 import Namespace, NodePatch
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs, ObjectMetaPatchArgs
from pulumi_kubernetes.node.v1 import OverheadArgs, RuntimeClass, SchedulingArgs

from components import helm
from components.helm import Chart
from components.host_connection import HostConnection
from components.kubernetes_objects import after, pod_security
from gpuclusters.core import scripts
from gpuclusters.kata import model as kata_model

WAIT_SECONDS = 600
"""Helm has waited for all nodes; a machine that is installed anew later gets its installer by itself."""


def runtime_class(
    name: str,
    handler: str,
    opts: pulumi.ResourceOptions | None = None,
    *,
    overhead: Mapping[str, str],
    node_selector: Mapping[str, str],
) -> RuntimeClass:
    """The RuntimeClass of containerd's handler, which `KataDeploy` installs.

    `overhead` is what a VM has beside its containers: counted for every pod by the scheduler and by quotas.
    """
    selector = dict(node_selector)
    return RuntimeClass(
        f"{name}-runtime-class",
        metadata=ObjectMetaArgs(name=handler),
        handler=handler,
        overhead=OverheadArgs(pod_fixed=dict(overhead)),
        scheduling=SchedulingArgs(node_selector=selector) if selector else None,
        opts=opts,
    )


@dataclass(frozen=True, kw_only=True)
class KataDeployArgs:
    chart: Chart
    values: Mapping[str, Any]
    """As `kata_model.chart_values` gives them."""
    hosts: Mapping[str, HostConnection]
    """The machines that get Kata, by name of their node."""
    private_key: pulumi.Input[str] | None
    node_labels: Mapping[str, str]
    """Labels that this program sets on each node; none if the nodes register with them."""
    verification: Sequence[str]
    """Arguments of scripts/kata/verify-kata.sh: what is looked for on every machine afterwards."""
    timeout_seconds: int
    """How long Helm waits until Kata is on all nodes; of the boot profile."""
    namespace: str = kata_model.NAMESPACE
    requires: Mapping[str, Sequence[pulumi.Resource]] = field(default_factory=dict)
    """What must be there first, by machine; labels of a node wait for its own part only."""


class KataDeploy(pulumi.ComponentResource):
    """Kata is on all nodes: namespace, labels of machines, the Helm release, a look at every machine."""

    def __init__(
        self, name: str, args: KataDeployArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:KataDeploy", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        namespace = Namespace(
            f"{name}-namespace",
            # The installer mounts the machine's file system; nothing else belongs here.
            metadata=ObjectMetaArgs(name=args.namespace, labels=pod_security("privileged")),
            opts=child,
        )
        labels = [
            NodePatch(
                f"{node}-labels",
                metadata=ObjectMetaPatchArgs(name=node, labels=dict(args.node_labels)),
                opts=after(*args.requires.get(node, ()), opts=child),
            )
            for node in args.hosts
            if args.node_labels
        ]
        immutable = [f"values.{path}" for path in kata_model.IMMUTABLE]
        release = helm.install(
            f"{name}-release",
            args.chart,
            after(
                *labels,
                *chain.from_iterable(args.requires.values()),
                opts=pulumi.ResourceOptions(parent=self, replace_on_changes=immutable),
            ),
            release=kata_model.RELEASE,
            namespace=namespace.metadata.name,
            values=args.values,
            timeout_seconds=args.timeout_seconds,
        )
        for node, connection in args.hosts.items():
            remote.Command(
                f"{node}-kata",
                connection=connection.command_connection(args.private_key),
                create=f"sudo -n sh -s -- --wait {WAIT_SECONDS} {shlex.join(args.verification)}",
                stdin=scripts.read("kata/verify-kata.sh"),
                # Again whenever something else is installed.
                triggers=[list(args.verification), args.chart.version or "", dict(args.values)],
                add_previous_output_in_env=False,
                opts=after(
                    release, opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True)
                ),
            )
        self.register_outputs({})
