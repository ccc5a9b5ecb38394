"""The active NVSwitch partitions of one board."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pulumi

from gpuclusters.core import adoption
from gpuclusters.fabric.board import BoardState, FabricBoard
from gpuclusters.fabric.decide import active_ids, health_warnings
from gpuclusters.fabric.model import FabricInputs
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider, host
from gpuclusters.providers.resource import ModelResource


class FabricPartitionsProvider(ReconcilingProvider[FabricInputs]):
    """Keeps the whole active set of a board; a partition in use is never deactivated."""

    model = FabricInputs
    changes_machine = exclusive = True
    identity = frozenset({"connection.host", "board", "baseboard"})

    def ensure(self, inputs: FabricInputs, before: Properties) -> Properties:
        made = self._board(inputs).ensure(applied=before.get("applied") or [])
        return _outputs(inputs, made, made.wanted)

    def differences(self, inputs: FabricInputs) -> Sequence[str]:
        return [*adoption.partitions(*self._board(inputs).before_adoption())]

    def observe(self, inputs: FabricInputs, before: Properties) -> Live | None:
        """What is active now. A board cannot be gone, only unreachable."""
        applied = [int(number) for number in before.get("applied") or []]
        seen = self._board(inputs).observe(
            wanted=inputs.wanted if inputs.layout is None else applied
        )
        health = health_warnings(inputs.partition_table, seen.live)
        outputs = _outputs(inputs, replace(seen, warnings=(*health, *seen.warnings)), applied)
        # The order is the user's own; only another set is drift. A layout stays what it was: which
        # partitions it became is told by the outputs.
        same = inputs.layout is not None or outputs["active"] == list(inputs.wanted)
        return Live(outputs, {} if same else {"partitions": outputs["active"]})

    def has_drifted(self, outputs: Properties) -> bool:
        active = outputs.get("active")
        wanted = outputs.get("partitions")
        if wanted is None:
            wanted = outputs.get("applied")
        return active is not None and sorted(active) != sorted(wanted or [])

    def remove(self, inputs: FabricInputs, before: Properties) -> None:
        self._board(inputs).release(applied=before.get("applied") or [])

    def _board(self, inputs: FabricInputs) -> FabricBoard:
        from gpuclusters.core.converge import Clock, Reporter
        from gpuclusters.fabric.manager import SshFabricManager, SshModuleMap
        from gpuclusters.host.remote import SshPciDevices

        reached = host(inputs.connection, self.ssh_key)
        return FabricBoard(
            inputs,
            SshFabricManager(reached, inputs.board, inputs.fabric_manager_host),
            SshPciDevices(reached, with_users=True),
            Clock(),
            Reporter(),
            SshModuleMap(reached),
        )


def _outputs(inputs: FabricInputs, state: BoardState, applied: Sequence[int]) -> Properties:
    # What leases have taken down for now counts as active: else every refresh between two tenants
    # would show drift, and the next update repair it under a GPU that is being reset.
    live, table = state.live, inputs.partition_table
    active = sorted({*active_ids(live), *state.left})
    modules = {i: live[i].modules if i in live else table.partition(i).modules for i in active}
    return {
        "active": active,
        "gpus_by_partition": {str(i): list(modules[i]) for i in active},
        # Kept through a refresh: what to tell a fabric manager that has forgotten it.
        "applied": list(applied),
        "warnings": list(state.warnings),
    }


class FabricPartitions(ModelResource, module="gpu", name="FabricPartitions"):
    """Exactly these partitions of the board are active."""

    provider = FabricPartitionsProvider
    active: pulumi.Output[Sequence[int]]
    """Numbers of the active partitions, in order; also of those that leases have down for now."""
    gpus_by_partition: pulumi.Output[Mapping[str, Sequence[int]]]
    applied: pulumi.Output[Sequence[int]]
    """What was last made active from here; a refresh leaves it."""
    warnings: pulumi.Output[Sequence[str]]
    """What the board cannot do at the moment: partitions without support, GPUs with fewer NVLinks or in
    quarantine."""
