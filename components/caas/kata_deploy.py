"""Kata Containers on the machines: the chart `kata-deploy` in a namespace of its own.

Owns: the namespace, the labels by which machines are chosen, the Helm release, the look at every machine
afterwards. Deliberately does not own: the RuntimeClass (`KataRuntime`), which must be known at preview and
outlive the chart.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pulumi
from pulumi_command import remote
from pulumi_kubernetes.core.v1 import Namespace, NodePatch
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs, ObjectMetaPatchArgs

from components.chart import Chart
from components.host_connection import HostConnection
from gpuclusters.core import scripts
from gpuclusters.kata import chart as kata_chart

WAIT_SECONDS = 600
"""Helm has waited for all nodes; a machine that is installed anew later gets its installer by itself."""
_POD_SECURITY = "pod-security.kubernetes.io"


@dataclass(frozen=True, kw_only=True)
class KataDeployArgs:
    """What is installed where, and how long it may take."""

    chart: Chart
    values: Mapping[str, Any]
    """As `kata_chart.chart_values` gives them."""
    hosts: Mapping[str, HostConnection]
    """The machines that get Kata, by name of their node."""
    private_key: pulumi.Input[str] | None
    node_labels: Mapping[str, str]
    """Labels that this program sets on each node, among them those that `values` select by; none if the
    nodes register with them."""
    verification: Sequence[str]
    """Arguments of kata/scripts/verify-kata.sh: what is looked for on every machine afterwards."""
    timeout_seconds: int
    """How long Helm waits until Kata is on all nodes; of the boot profile."""
    namespace: str = kata_chart.NAMESPACE
    requires: Mapping[str, Sequence[pulumi.Resource]] = field(default_factory=dict)
    """What must be there first, by machine: its containerd drop-ins, its node. Kata waits for all of it, the
    labels of a node for its own part only: a hundred machines times a hundred would be a large graph."""


class KataDeploy(pulumi.ComponentResource):
    """Owns the Helm release. It is there when the installer says on every node that it is done."""

    ready: Sequence[pulumi.Resource]
    """What to depend on: Kata is on all nodes, as declared."""

    def __init__(
        self, name: str, args: KataDeployArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:KataDeploy", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(
                name=args.namespace,
                # The installer mounts the machine's file system; nothing else belongs here.
                labels={
                    f"{_POD_SECURITY}/{mode}": "privileged" for mode in ("enforce", "audit", "warn")
                },
            ),
            opts=child,
        )
        labels = [
            NodePatch(
                f"{node}-labels",
                metadata=ObjectMetaPatchArgs(name=node, labels=dict(args.node_labels)),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.requires.get(node, ())]),
            )
            for node in args.hosts
            if args.node_labels
        ]
        release = Release(
            f"{name}-release",
            name=kata_chart.RELEASE,
            chart=args.chart.reference,
            version=args.chart.version,
            repository_opts=args.chart.repository_options,
            namespace=namespace.metadata.name,
            values=dict(args.values),
            timeout=args.timeout_seconds,
            # Removing Kata from all machines because one was slow would end what runs on the others.
            atomic=False,
            cleanup_on_fail=False,
            max_history=5,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*labels, *chain.from_iterable(args.requires.values())],
                replace_on_changes=[f"values.{path}" for path in kata_chart.IMMUTABLE],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{args.timeout_seconds}s",
                    update=f"{args.timeout_seconds}s",
                    delete=f"{args.timeout_seconds}s",
                ),
            ),
        )
        verify = scripts.read("kata/verify-kata.sh")
        checks = [
            remote.Command(
                f"{node}-kata",
                connection=connection.command_connection(args.private_key),
                create=f"sudo -n sh -s -- --wait {WAIT_SECONDS} {shlex.join(args.verification)}",
                stdin=verify,
                # Again whenever something else is installed.
                triggers=[list(args.verification), args.chart.version or "", dict(args.values)],
                add_previous_output_in_env=False,
                opts=pulumi.ResourceOptions(
                    parent=self, depends_on=[release], delete_before_replace=True
                ),
            )
            for node, connection in args.hosts.items()
        ]
        self.ready = [release, *checks]
        self.register_outputs({})
