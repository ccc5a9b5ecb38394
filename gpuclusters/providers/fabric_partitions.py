"""The active NVSwitch partitions of one board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from gpuclusters.domain import reconcile_fabric
from gpuclusters.domain.fabric_state import FabricInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties

if TYPE_CHECKING:
    from gpuclusters.adapters.ssh import SshHost


class FabricPartitionsProvider(KeptProvider[FabricInputs]):
    """Keeps the whole active set of a board; a partition in use is never deactivated."""

    model = FabricInputs
    identity = frozenset({"connection.host", "board", "baseboard"})

    def ensure(self, inputs: FabricInputs, before: Properties) -> Properties:
        """Deactivate what must go, activate what must come."""
        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            live = reconcile_fabric.ensure_partitions(
                inputs, _fabric(inputs, reached), applied=before.get("applied") or []
            )
        return _outputs(live, list(inputs.wanted))

    def observe(self, inputs: FabricInputs, before: Properties) -> Live | None:
        """What is active now. A board cannot be gone, only unreachable."""
        fabric = _fabric(inputs, host(inputs.connection, self.ssh_key))
        live = reconcile_fabric.read_partitions(fabric)
        active = list(reconcile_fabric.active_ids(live))
        # The order is the user's own; only another set is drift.
        found = {} if active == list(inputs.wanted) else {"partitions": active}
        return Live(_outputs(live, before.get("applied") or []), found)

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether other partitions are active than the state's own inputs say."""
        active = outputs.get("active")
        return active is not None and sorted(active) != sorted(outputs.get("partitions") or [])

    def remove(self, inputs: FabricInputs, before: Properties) -> None:
        """Deactivate what is ours."""
        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            reconcile_fabric.release_partitions(
                inputs, _fabric(inputs, reached), applied=before.get("applied") or []
            )


def _fabric(inputs: FabricInputs, reached: SshHost) -> reconcile_fabric.Fabric:
    from gpuclusters.adapters.fabric_manager import SshFabricManager
    from gpuclusters.adapters.here import StandardError, SystemClock
    from gpuclusters.adapters.pci_devices import SshPciDevices

    return reconcile_fabric.Fabric(
        SshFabricManager(reached, inputs.board, inputs.fabric_manager_host),
        SshPciDevices(reached, with_users=True),
        SystemClock(),
        StandardError(),
    )


def _outputs(live: reconcile_fabric.LiveTable, applied: Sequence[int]) -> Properties:
    active = reconcile_fabric.active_ids(live)
    return {
        "active": list(active),
        "gpus_by_partition": {str(i): list(live[i].modules) for i in active},
        # Kept through a refresh: what to tell a fabric manager that has forgotten it.
        "applied": list(applied),
    }


class FabricPartitions(Resource, module="gpu", name="FabricPartitions"):
    """Exactly these partitions of the board are active."""

    active: pulumi.Output[Sequence[int]]
    """Numbers of the active partitions, in order."""
    gpus_by_partition: pulumi.Output[Mapping[str, Sequence[int]]]
    """Module numbers by active partition."""
    applied: pulumi.Output[Sequence[int]]
    """What was last made active from here; a refresh leaves it."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        board: pulumi.Input[str],
        baseboard: pulumi.Input[str],
        partitions: pulumi.Input[Sequence[int]],
        gpus: pulumi.Input[Mapping[str, str]] | None = None,
        fabric_manager_host: pulumi.Input[str] = "127.0.0.1",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the active set.

        Args:
            name: logical name.
            connection: how the host is reached.
            board: name of the board on its host.
            baseboard: its type, like `hgx-h100`.
            partitions: numbers of the partitions that are active, all others are not.
            gpus: PCI address by module number; needed to know whether a partition is in use.
            fabric_manager_host: address of the fabric manager as seen from the host.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "connection": connection,
            "board": board,
            "baseboard": baseboard,
            "partitions": partitions,
            "gpus": gpus if gpus is not None else {},
            "fabric_manager_host": fabric_manager_host,
            "active": None,
            "gpus_by_partition": None,
            "applied": None,
        }
        super().__init__(FabricPartitionsProvider(), name, properties, opts)
