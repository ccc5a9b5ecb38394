"""A node that is out of service for as long as the resource exists."""

from collections.abc import Sequence

import pulumi

from gpuclusters.maintenance import decide
from gpuclusters.maintenance.decide import MaintenanceInputs
from gpuclusters.providers.reconciling import ClusterProvider, Live, Properties
from gpuclusters.providers.resource import ModelResource


class NodeMaintenanceProvider(ClusterProvider[MaintenanceInputs]):
    """Made when the node is drained; gone when it is back in service."""

    model = MaintenanceInputs
    identity = frozenset({"cluster", "node"})

    def ensure(self, inputs: MaintenanceInputs, before: Properties) -> Properties:  # noqa: ARG002
        from gpuclusters.core.converge import Clock, Reporter

        return decide.begin(inputs, self.cluster(inputs), Clock(), Reporter())

    def observe(self, inputs: MaintenanceInputs, before: Properties) -> Live | None:  # noqa: ARG002
        duty = decide.observe(inputs, self.cluster(inputs))
        return Live(duty, {}) if duty else None

    def has_drifted(self, outputs: Properties) -> bool:
        return outputs.get("cordoned") is False or bool(outputs.get("busy"))

    def remove(self, inputs: MaintenanceInputs, before: Properties) -> None:  # noqa: ARG002
        decide.end(inputs, self.cluster(inputs))


class NodeMaintenance(ModelResource, module="gpu", name="NodeMaintenance"):
    """A node on which nothing new is placed and whose GPUs are nobody's."""

    provider = NodeMaintenanceProvider

    cordoned: pulumi.Output[bool]
    """Whether the scheduler leaves the node alone."""
    busy: pulumi.Output[Sequence[str]]
    """GPUs that were held, or being taken back, when it was last looked."""
    quarantined: pulumi.Output[Sequence[str]]
    """GPUs in quarantine; they stay there."""
