"""Kata on the machines."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import Namespace, NodePatch
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs, ObjectMetaPatchArgs

from components import helm
from components.component import Component
from components.helm import Chart
from components.host_connection import HostConnection
from components.kubernetes_objects import after, pod_security
from gpuclusters.kata import model as kata_model

WAIT_SECONDS = 600
"""Helm has waited for all nodes; a machine that is installed anew later gets its installer by itself."""


class KataDeploy(Component, module="caas"):
    """Kata is on all nodes: namespace, labels of machines, the Helm release, a look at every machine."""

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

    def declare(self) -> None:
        name, child = self._name, self.child
        namespace = Namespace(
            f"{name}-namespace",
            # The installer mounts the machine's file system; nothing else belongs here.
            metadata=ObjectMetaArgs(name=self.namespace, labels=pod_security("privileged")),
            opts=child,
        )
        labels = [
            NodePatch(
                f"{node}-labels",
                metadata=ObjectMetaPatchArgs(name=node, labels=dict(self.node_labels)),
                opts=after(*self.requires.get(node, ()), opts=child),
            )
            for node in self.hosts
            if self.node_labels
        ]
        immutable = [f"values.{path}" for path in kata_model.IMMUTABLE]
        release = helm.install(
            f"{name}-release",
            self.chart,
            after(
                *labels,
                *chain.from_iterable(self.requires.values()),
                opts=pulumi.ResourceOptions(parent=self, replace_on_changes=immutable),
            ),
            release=kata_model.RELEASE,
            namespace=namespace.metadata.name,
            values=self.values,
            timeout_seconds=self.timeout_seconds,
        )
        again = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        for node, connection in self.hosts.items():
            connection.root_script(
                f"{node}-kata",
                self.private_key,
                "kata/verify-kata.sh",
                ["--wait", str(WAIT_SECONDS), *self.verification],
                after(release, opts=again),
                # Again whenever something else is installed.
                triggers=[list(self.verification), self.chart.version or "", dict(self.values)],
            )
