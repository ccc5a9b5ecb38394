"""Bring one board's active partitions to the wanted set, without pulling links from under a VM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuclusters.domain.fabric import TABLES
from gpuclusters.domain.fabric_state import (
    ALREADY_ACTIVE,
    ALREADY_INACTIVE,
    NO_CONNECTION,
    NOT_CONFIGURED,
    PASSING_CODES,
    FabricError,
    FabricInputs,
    must_restore,
    plan_steps,
    table_differences,
)
from gpuclusters.domain.ports import Clock, FabricManager, Journal, LivePartition, PciDevices
from gpuclusters.domain.refusals import RefusalError

# A fabric manager with eight GPUs and four switches initialises within a minute; the second one
# is for a service VM under load.
DEADLINE_SECONDS = 120.0
# A restart drops the port for a few seconds. Longer than this means that nothing listens there.
NO_CONNECTION_SECONDS = 20.0
# A refresh asks many boards; one that is not ready by then is reported as it is.
READ_DEADLINE_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0

T = TypeVar("T")
LiveTable = Mapping[int, LivePartition]


@dataclass(frozen=True, slots=True)
class Fabric:
    """The ports that a change of partitions needs."""

    manager: FabricManager
    pci: PciDevices
    clock: Clock
    journal: Journal


def ensure_partitions(spec: FabricInputs, fabric: Fabric, *, applied: Sequence[int]) -> LiveTable:
    """Make exactly the wanted partitions active; answers the table as it is then.

    Args:
        spec: the board and the wanted ids.
        fabric: the ports.
        applied: ids that this resource made active before; given back to a fabric manager that
            has forgotten them in a restart, so that running VMs keep their links.

    Raises:
        RefusalError: the board's table is another one, or a partition that has to go is in use;
            nothing was changed then.
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    live = _list_or_restore(spec, fabric, applied)
    require_table(spec, fabric.manager.place, live)
    plan = plan_steps(active_ids(live), spec.wanted)
    require_unused(spec, fabric, live, plan.deactivate)
    for partition_id in plan.deactivate:
        # Asked again for each one: a VM may have started since.
        require_unused(spec, fabric, live, [partition_id])
        _deactivate(fabric, partition_id)
    for partition_id in plan.activate:
        _activate(fabric, partition_id)
    live = _patiently(fabric, fabric.manager.partitions)
    if active_ids(live) != spec.wanted:
        raise RefusalError(
            fabric.manager.place,
            f"partitions {_list(active_ids(live)) or 'none'} are active after all steps, instead "
            f"of {_list(spec.wanted) or 'none'}",
            "find out who else changes partitions of this board, then run again",
        )
    return live


def release_partitions(spec: FabricInputs, fabric: Fabric, *, applied: Sequence[int]) -> None:
    """Deactivate the partitions of the spec that are active.

    Args:
        spec: the board and the ids to give up.
        fabric: the ports.
        applied: as with `ensure_partitions`; a restarted fabric manager has to know what is
            active before it can be taken down.

    Raises:
        RefusalError: one of them is in use; nothing was changed then.
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    live = _list_or_restore(spec, fabric, applied)
    ours = [i for i in active_ids(live) if i in {*spec.wanted, *applied}]
    require_unused(spec, fabric, live, ours)
    for partition_id in ours:
        require_unused(spec, fabric, live, [partition_id])
        _deactivate(fabric, partition_id)


def read_partitions(fabric: Fabric) -> LiveTable:
    """The live table; empty when the fabric manager waits to be told what was active."""
    try:
        return _patiently(fabric, fabric.manager.partitions, deadline=READ_DEADLINE_SECONDS)
    except FabricError as error:
        if error.code != NOT_CONFIGURED:
            raise
        return {}


def active_ids(live: LiveTable) -> tuple[int, ...]:
    """The ids of the active partitions, in order."""
    return tuple(sorted(p.id for p in live.values() if p.active))


def require_table(spec: FabricInputs, place: str, live: LiveTable) -> None:
    """Check that the board's table is the one the plan was made with.

    Raises:
        RefusalError: with each difference, both sides.
    """
    differences = list(table_differences(TABLES[spec.baseboard], live))
    if differences:
        raise RefusalError(
            place,
            f"the fabric manager's partition table is not that of {spec.baseboard}: "
            + "; ".join(differences),
            "check the baseboard in the configuration, and for missing partitions "
            "`fmpm --list-unsupported-partitions` (a GPU that failed takes its partitions along)",
        )


def require_unused(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, ids: Collection[int]
) -> None:
    """Check that no process holds a GPU of these partitions.

    Raises:
        RefusalError: one is held, or it cannot be known because a GPU has no PCI address.
    """
    modules = sorted({m for i in ids for m in live[i].modules})
    unknown = [m for m in modules if str(m) not in spec.gpus]
    if unknown:
        raise RefusalError(
            fabric.manager.place,
            f"partitions {_list(ids)} have to be deactivated, but whether GPUs {_list(unknown)} "
            "are in use cannot be known without their PCI addresses",
            "give them in `gpus`, like {'1': '0000:86:00.0'}",
        )
    held = _held(spec, fabric, live, ids)
    if held:
        raise RefusalError(
            fabric.manager.place,
            f"partitions {_list(ids)} have to be deactivated, but are in use: {'; '.join(held)}",
            "stop the VMs of these processes first",
        )


def _held(spec: FabricInputs, fabric: Fabric, live: LiveTable, ids: Collection[int]) -> list[str]:
    """GPUs of these partitions that a process holds, as far as their addresses are known."""
    modules = sorted({m for i in ids for m in live[i].modules})
    addresses = {spec.gpus[str(m)]: m for m in modules if str(m) in spec.gpus}
    found = fabric.pci.inspect(list(addresses)) if addresses else {}
    return [
        f"GPU {addresses[f.address]} ({f.address}) by process {_list(f.users)}"
        for f in found.values()
        if f.users
    ]


def _list_or_restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """The live table, after giving a forgetful fabric manager its active set back."""

    def attempt() -> LiveTable:
        try:
            live = fabric.manager.partitions()
        except FabricError as error:
            # -8 has two meanings: still initialising, or waiting for the list after a restart.
            # To a fabric manager that initialises the list says nothing, it answers -8 again.
            if error.code != NOT_CONFIGURED or not _may_restore(spec, fabric, applied):
                raise
        else:
            if not must_restore(active_ids(live), applied):
                return live
            try:
                return _restore(spec, fabric, applied)
            except FabricError as error:
                # It answered, so it may well remember, and somebody has deactivated all by hand.
                if error.code in PASSING_CODES or _held(spec, fabric, live, applied):
                    raise
                return live
        return _restore(spec, fabric, applied)

    return _patiently(fabric, attempt)


def _restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """Tell the fabric manager what is active, and look whether it has taken it in."""
    fabric.manager.set_activated(applied)
    live = fabric.manager.partitions()
    fabric.journal.note(
        f"{fabric.manager.place}: the fabric manager had forgotten what is active; "
        f"told it: partitions {_list(applied) or 'none'}"
    )
    lost = [i for i in applied if i in live and not live[i].active]
    held = _held(spec, fabric, live, lost)
    if held:
        # Published versions of fmpm send an empty list whatever they are given. Without users
        # that does no harm: what is wanted is activated anew.
        raise RefusalError(
            fabric.manager.place,
            f"the restarted fabric manager does not know of partitions {_list(lost)} although it "
            f"was told, and they are in use: {'; '.join(held)}",
            "install an fmpm that passes on --set-activated-list, or stop the VMs first",
        )
    return live


def _may_restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> bool:
    """Whether `applied` can be the truth: with nothing known, no GPU may be in use."""
    if applied:
        return True
    if not spec.gpus:
        return False
    return not any(f.users for f in fabric.pci.inspect(list(spec.gpus.values())).values())


def _activate(fabric: Fabric, partition_id: int) -> None:
    try:
        _patiently(fabric, lambda: fabric.manager.activate(partition_id))
    except FabricError as error:
        if error.code != ALREADY_ACTIVE:
            raise


def _deactivate(fabric: Fabric, partition_id: int) -> None:
    try:
        _patiently(fabric, lambda: fabric.manager.deactivate(partition_id))
    except FabricError as error:
        if error.code != ALREADY_INACTIVE:
            raise


def _patiently(fabric: Fabric, call: Callable[[], T], *, deadline: float = DEADLINE_SECONDS) -> T:
    """The call, again with growing pauses while the fabric manager says "later"."""
    started = fabric.clock.now()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return call()
        except FabricError as error:
            limit = NO_CONNECTION_SECONDS if error.code == NO_CONNECTION else deadline
            late = fabric.clock.now() - started + pause > limit
            if late or error.code not in PASSING_CODES:
                raise
        fabric.clock.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _list(values: Collection[int]) -> str:
    return ", ".join(map(str, values))
