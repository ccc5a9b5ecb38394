"""Which partitions of a layout are left to the leases of the machine, and what is said about them.

A GPU that is being recycled, or is in quarantine, has a mark (`fabric_lock.py`). A wanted partition
with such a GPU is down because the leases want it so, and they bring it up: that is no drift, and
nothing to be repaired from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpuclusters.domain.fabric_state import FabricInputs
from gpuclusters.domain.ports import LeaseMarks, LivePartition
from gpuclusters.fabric.backoff import Fabric, listed


@dataclass(frozen=True, slots=True)
class Look:
    """The board and the marks of leases at one moment."""

    live: Mapping[int, LivePartition]
    """Empty when the fabric manager gives no table, as after a restart."""
    marks: LeaseMarks


def look(fabric: Fabric) -> Look:
    """Ask for both at a moment at which nobody changes partitions."""
    seen = fabric.manager.change(())
    return Look(seen.live or {}, seen.marks)


def left_to_leases(spec: FabricInputs, marks: LeaseMarks, ids: Collection[int]) -> tuple[int, ...]:
    """Those of the partitions that have a GPU with a mark, in order."""
    table = spec.partition_table
    return tuple(
        i
        for i in sorted(ids)
        if any(spec.gpus.get(str(m)) in marks.withheld for m in table.partition(i).modules)
    )


def quarantine_warnings(spec: FabricInputs, marks: LeaseMarks, left: Collection[int]) -> list[str]:
    """For each GPU in quarantine, the partitions that stay down because of it.

    Nothing is said about GPUs that are just being recycled: that passes, and would show as a change.
    """
    found: list[str] = []
    table = spec.partition_table
    for module, address in sorted(spec.gpus.items()):
        if address in marks.quarantined:
            ids = [i for i in sorted(left) if int(module) in table.partition(i).modules]
            if ids:
                found.append(
                    f"GPU {module} ({address}) is in quarantine: partitions {listed(ids)} stay "
                    "inactive until its lease is free again (`kubectl get gpuleases` says why)"
                )
    return found
