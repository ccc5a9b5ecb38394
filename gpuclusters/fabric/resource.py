"""The active NVSwitch partitions of one board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import adoption
from gpuclusters.domain.fabric_state import FabricInputs
from gpuclusters.fabric import health as fabric_health
from gpuclusters.fabric.partitions import (
    Fabric,
    LiveTable,
    active_ids,
    before_adoption,
    ensure_partitions,
    observe_partitions,
    release_partitions,
)
from gpuclusters.providers.hosts import host
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.ssh import SshHost


class FabricPartitionsProvider(ReconcilingProvider[FabricInputs]):
    """Keeps the whole active set of a board; a partition in use is never deactivated."""

    model = FabricInputs
    changes_machine = True
    identity = frozenset({"connection.host", "board", "baseboard"})

    def ensure(self, inputs: FabricInputs, before: Properties) -> Properties:
        """Deactivate what must go, activate what must come."""
        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            made = ensure_partitions(
                inputs, _fabric(inputs, reached), applied=before.get("applied") or []
            )
        return _outputs(inputs, made.live, made.wanted, made.warnings, made.left)

    def differences(self, inputs: FabricInputs) -> Sequence[str]:
        """Of the partitions that are active."""
        fabric = _fabric(inputs, host(inputs.connection, self.ssh_key))
        active, wanted = before_adoption(inputs, fabric)
        return [*adoption.partitions(active, wanted)]

    def observe(self, inputs: FabricInputs, before: Properties) -> Live | None:
        """What is active now. A board cannot be gone, only unreachable."""
        fabric = _fabric(inputs, host(inputs.connection, self.ssh_key))
        applied = [int(number) for number in before.get("applied") or []]
        wanted = inputs.wanted if inputs.layout is None else applied
        seen = observe_partitions(inputs, fabric, wanted=wanted)
        health = fabric_health.warnings(inputs.partition_table, seen.live, {}) if seen.live else []
        outputs = _outputs(inputs, seen.live, applied, [*health, *seen.warnings], seen.left)
        # The order is the user's own; only another set is drift. A layout stays what it was: which
        # partitions it became is told by the outputs.
        same = inputs.layout is not None or outputs["active"] == list(inputs.wanted)
        return Live(outputs, {} if same else {"partitions": outputs["active"]})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether other partitions are active than the state's own inputs say."""
        active = outputs.get("active")
        wanted = outputs.get("partitions")
        if wanted is None:
            wanted = outputs.get("applied")
        return active is not None and sorted(active) != sorted(wanted or [])

    def remove(self, inputs: FabricInputs, before: Properties) -> None:
        """Deactivate what is ours."""
        reached = host(inputs.connection, self.ssh_key)
        with reached.exclusive:
            release_partitions(
                inputs, _fabric(inputs, reached), applied=before.get("applied") or []
            )


def _fabric(inputs: FabricInputs, reached: SshHost) -> Fabric:
    from gpuclusters.adapters.module_map import SshModuleMap
    from gpuclusters.adapters.system import StderrReporter, SystemClock
    from gpuclusters.fabric.manager import SshFabricManager
    from gpuclusters.host.remote import SshPciDevices

    return Fabric(
        SshFabricManager(reached, inputs.board, inputs.fabric_manager_host),
        SshPciDevices(reached, with_users=True),
        SystemClock(),
        StderrReporter(),
        SshModuleMap(reached),
    )


def _outputs(
    inputs: FabricInputs,
    live: LiveTable,
    applied: Sequence[int],
    warnings: Sequence[str],
    left: Sequence[int],
) -> Properties:
    # What leases have taken down for now counts as active: else every refresh between two tenants
    # would show drift, and the next update repair it under a GPU that is being reset.
    active = sorted({*active_ids(live), *left})
    table = inputs.partition_table
    modules = {i: live[i].modules if i in live else table.partition(i).modules for i in active}
    return {
        "active": active,
        "gpus_by_partition": {str(i): list(modules[i]) for i in active},
        # Kept through a refresh: what to tell a fabric manager that has forgotten it.
        "applied": list(applied),
        "warnings": list(warnings),
    }


class FabricPartitions(Resource, module="gpu", name="FabricPartitions"):
    """Exactly these partitions of the board are active."""

    active: pulumi.Output[Sequence[int]]
    """Numbers of the active partitions, in order; also of those that leases have down for now."""
    gpus_by_partition: pulumi.Output[Mapping[str, Sequence[int]]]
    """Module numbers by active partition."""
    applied: pulumi.Output[Sequence[int]]
    """What was last made active from here; a refresh leaves it."""
    warnings: pulumi.Output[Sequence[str]]
    """What the board cannot do at the moment: partitions without support, GPUs with fewer NVLinks or in
    quarantine."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        board: pulumi.Input[str],
        baseboard: pulumi.Input[str],
        partitions: pulumi.Input[Sequence[int]] | None = None,
        layout: pulumi.Input[Sequence[int]] | None = None,
        table: pulumi.Input[Mapping[str, Sequence[int]]] | None = None,
        gpus: pulumi.Input[Mapping[str, str]] | None = None,
        module_map: pulumi.Input[str] = "read",
        fabric_manager_host: pulumi.Input[str] = "127.0.0.1",
        fabric_manager_version: pulumi.Input[str] | None = None,
        guest_driver: pulumi.Input[str] | None = None,
        fabric_manager_run: pulumi.Input[str] | None = None,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the active set.

        Args:
            name: logical name.
            connection: how the host is reached.
            board: name of the board on its host.
            baseboard: its type, like `hgx-h100`.
            partitions: numbers of the partitions that are active, all others are not.
            layout: instead of numbers, sizes: cut with the fewest changes to the board as it is,
                around what is in use.
            table: the board's own table, modules by partition number, where it is not the
                baseboard's.
            gpus: PCI address by module number; needed to know whether a partition is in use.
            module_map: `read` compares `gpus` with what the GPUs say before anything is changed;
                `stated` for GPUs that cannot say it without a driver.
            fabric_manager_host: address of the fabric manager as seen from the host.
            fabric_manager_version: what runs in the service VM, as read there.
            guest_driver: the guests' driver; refused unless equal to the fabric manager's version.
            fabric_manager_run: output `run` of the ServiceVm: a restarted one is told what is active.
            adopt: take over the partitions that are active, if they are these.
            opts: resource options.
        """
        given: dict[str, Any] = {
            "partitions": partitions,
            "layout": layout,
            "table": table,
            "fabric_manager_version": fabric_manager_version,
            "guest_driver": guest_driver,
            "fabric_manager_run": fabric_manager_run,
            "adopt": adopt or None,
        }
        properties: dict[str, Any] = {
            "connection": connection,
            "board": board,
            "baseboard": baseboard,
            "gpus": gpus if gpus is not None else {},
            "module_map": module_map,
            "fabric_manager_host": fabric_manager_host,
            "active": None,
            "gpus_by_partition": None,
            "applied": None,
            "warnings": None,
        }
        properties |= {key: value for key, value in given.items() if value is not None}
        super().__init__(name, properties, opts)
