"""One machine on Google Cloud, in the first zone of several that has room."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.dynamic import DiffResult

from gpuclusters.domain import gcp_placement
from gpuclusters.domain.gcp_compute import Instance
from gpuclusters.domain.gcp_machine import GcpMachineInputs
from gpuclusters.providers.google_cloud import access, compute
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import Resource

ONCE = ("user_data", "create_timeout_seconds")
"""What matters while a machine is made. Later a difference is none: cloud-init reads its data once, and a new
version of this program must not make all machines anew."""


class GcpMachineProvider(ReconcilingProvider[GcpMachineInputs]):
    """Finds, makes, starts and deletes one machine; where it is stays where it is."""

    model = GcpMachineInputs
    identity = frozenset(
        {
            "project",
            "name",
            "owner",
            "machine_type",
            "accelerator",
            "accelerator.type",
            "accelerator.count",
            "gpus",
            "provisioning",
            "disk.image",
            "disk.size_gib",
            "disk.type",
            "subnetwork",
            "public_address",
            "service_account",
            "scopes",
        }
    )
    sensitive = frozenset({"user_data"})

    def diff(self, _id: str, olds: Properties, news: Properties) -> DiffResult:
        """Compare all but what matters once; pure."""
        kept = {key: olds[key] for key in ONCE if key in olds}
        return super().diff(_id, olds, {**news, **kept})

    def has_drifted(self, outputs: Properties) -> bool:
        """Stopped by somebody, or taken back by Google."""
        return outputs.get("status") not in (None, gcp_placement.RUNNING)

    def ensure(self, inputs: GcpMachineInputs, before: Properties) -> Properties:  # noqa: ARG002
        """The machine, running."""
        from gpuclusters.core.converge import StderrReporter, SystemClock

        live = gcp_placement.ensure(inputs, compute(inputs.google), SystemClock(), StderrReporter())
        return _outputs(inputs, live)

    def observe(self, inputs: GcpMachineInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The machine as it is."""
        live = gcp_placement.locate(inputs, compute(inputs.google))
        if live is None:
            return None
        return Live(_outputs(inputs, live), gcp_placement.drift(inputs, live))

    def remove(self, inputs: GcpMachineInputs, before: Properties) -> None:  # noqa: ARG002
        """Delete it."""
        gcp_placement.remove(inputs, compute(inputs.google))


def _outputs(inputs: GcpMachineInputs, live: Instance) -> Properties:
    return {
        "zone": live.zone,
        "status": live.status,
        "instance_id": live.instance_id,
        "internal_address": live.address,
        "address": live.public_address if inputs.public_address else live.address,
    }


class GcpMachine(Resource, module="gpu", name="GcpMachine"):
    """A machine on Google Cloud."""

    zone: pulumi.Output[str]
    """Where it is."""
    status: pulumi.Output[str]
    instance_id: pulumi.Output[str]
    """Another one is another machine, with other GPUs."""
    internal_address: pulumi.Output[str]
    """Within the network."""
    address: pulumi.Output[str]
    """Where its SSH server is reached: on the internet if it has an address there."""

    def __init__(
        self,
        name: str,
        *,
        inputs: dict[str, pulumi.Input[Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        outputs = ("zone", "status", "instance_id", "internal_address", "address")
        super().__init__(name, {"google": access(), **inputs, **dict.fromkeys(outputs)}, opts)
