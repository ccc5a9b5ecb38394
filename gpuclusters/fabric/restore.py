"""A fabric manager that restarts leaves the switches routing and forgets what is active: telling it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuclusters.core.finding import refused
from gpuclusters.domain.fabric_codes import NOT_CONFIGURED, PASSING_CODES, FabricError
from gpuclusters.domain.fabric_state import FabricInputs, must_restore
from gpuclusters.domain.ports import LivePartition
from gpuclusters.fabric.backoff import (
    Fabric,
    LiveTable,
    active_ids,
    held_gpus,
    listed,
    patiently,
)
from gpuclusters.fabric.lease_markers import left_to_leases, look


def list_or_restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """The live table, after giving a forgetful fabric manager its active set back.

    Raises:
        Refused: it was told and does not know, while VMs run on what it forgot.
        FabricError: it refuses or is not ready before the deadline.
    """

    def attempt() -> LiveTable:
        try:
            live = fabric.manager.partitions()
        except FabricError as error:
            # -8 has two meanings: still initialising, or waiting for the list after a restart.
            # To a fabric manager that initialises the list says nothing, it answers -8 again.
            if error.code != NOT_CONFIGURED:
                raise
            known = still_active(spec, fabric, applied)
            if not may_restore(spec, fabric, known):
                raise
            return restore(spec, fabric, known)
        if not must_restore(active_ids(live), applied):
            return live
        known = still_active(spec, fabric, applied)
        if not may_restore(spec, fabric, known):
            return live
        try:
            return restore(spec, fabric, known)
        except FabricError as error:
            # It answered, so it may well remember, and somebody has deactivated all by hand.
            if error.code in PASSING_CODES or held_gpus(spec, fabric, live, known):
                raise
            return live

    return patiently(fabric, attempt)


def restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """Tell the fabric manager what is active, also that nothing is, and look whether it took it in."""
    fabric.manager.set_activated(applied)
    live = fabric.manager.partitions()
    fabric.reporter.note(
        f"{fabric.manager.place}: the fabric manager had forgotten what is active; "
        f"told it: partitions {listed(applied) or 'none'}"
    )
    lost = [i for i in applied if i in live and not live[i].active]
    held = held_gpus(spec, fabric, live, lost)
    if held:
        # Published versions of fmpm send an empty list whatever they are given. Without users
        # that does no harm: what is wanted is activated anew.
        raise refused(
            fabric.manager.place,
            "fabric.forgotten",
            f"the restarted fabric manager does not know of partitions {listed(lost)} although it "
            f"was told, and they are in use: {'; '.join(held)}",
            "install an fmpm that passes on --set-activated-list, or stop the VMs first",
        )
    return live


def may_restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> bool:
    """Whether `applied` can be the truth: with nothing known, no GPU may be in use."""
    if applied:
        return True
    if not spec.gpus:
        return False
    return not any(f.users for f in fabric.pci.inspect(list(spec.gpus.values())).values())


def still_active(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> Sequence[int]:
    """What was made active, without what leases have taken down since; what a VM uses was not."""
    if not applied or not spec.gpus:
        return applied
    seen = look(fabric)
    down = left_to_leases(spec, seen.marks, applied)
    table = spec.partition_table
    # Its own table may be silent by now; which GPUs they are is known without it.
    planned = {i: LivePartition(i, table.partition(i).modules, active=False) for i in down}
    return [i for i in applied if i not in planned or held_gpus(spec, fabric, {i: planned[i]}, [i])]
