"""A node that is out of service for as long as the resource exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import maintenance
from gpuclusters.domain.maintenance import DEFAULT_TIMEOUT_SECONDS, MaintenanceInputs
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects


class NodeMaintenanceProvider(KeptProvider[MaintenanceInputs]):
    """Made when the node is drained; gone when it is back in service."""

    model = MaintenanceInputs
    identity = frozenset({"cluster", "node"})
    sensitive = frozenset({"kubeconfig"})

    def ensure(self, inputs: MaintenanceInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Cordon the node and wait until its GPUs are nobody's."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        duty = maintenance.begin(inputs, _cluster(inputs), SystemClock(), StderrReporter())
        return duty.outputs()

    def observe(self, inputs: MaintenanceInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The node as it is now."""
        duty = maintenance.observe(inputs, _cluster(inputs))
        return Live(duty.outputs(), {}) if duty else None

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found the node open, or GPUs held on it again."""
        return outputs.get("cordoned") is False or bool(outputs.get("busy"))

    def remove(self, inputs: MaintenanceInputs, before: Properties) -> None:  # noqa: ARG002
        """Give the node back to the scheduler."""
        maintenance.end(inputs, _cluster(inputs))


def _cluster(inputs: MaintenanceInputs) -> KubernetesObjects:
    # Imported late: the client takes half a second to load, and a program only declares.
    from gpuclusters.adapters.kubernetes_objects import KubernetesObjects

    return KubernetesObjects(inputs.kubeconfig)


class NodeMaintenance(Resource, module="gpu", name="NodeMaintenance"):
    """A node on which nothing new is placed and whose GPUs are nobody's."""

    cordoned: pulumi.Output[bool]
    """Whether the scheduler leaves the node alone."""
    busy: pulumi.Output[Sequence[str]]
    """GPUs that were held, or being taken back, when it was last looked."""
    quarantined: pulumi.Output[Sequence[str]]
    """GPUs in quarantine; they stay there."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        node: pulumi.Input[str],
        drain: pulumi.Input[str],
        timeout_seconds: pulumi.Input[float] = DEFAULT_TIMEOUT_SECONDS,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Take a node out of service.

        Args:
            name: logical name.
            cluster: name of the cluster, part of the id.
            kubeconfig: of a user who may cordon nodes and, to evict, delete pods; kept as a secret.
            node: name of the node.
            drain: `wait` until the containers end, or `evict` them.
            timeout_seconds: how long to wait for GPUs to be free.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "cluster": cluster,
            "kubeconfig": pulumi.Output.secret(kubeconfig),
            "node": node,
            "drain": drain,
            "timeout_seconds": timeout_seconds,
            "cordoned": None,
            "busy": None,
            "quarantined": None,
        }
        super().__init__(name, properties, opts)
