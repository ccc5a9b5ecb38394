"""Bring one board's active partitions to the wanted set, without pulling links from under a VM."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gpuclusters.core.finding import refused
from gpuclusters.domain.fabric_codes import NOT_CONFIGURED, Action, FabricError, action
from gpuclusters.domain.fabric_state import FabricInputs, plan_steps
from gpuclusters.domain.ports import FabricStep
from gpuclusters.fabric import health as fabric_health
from gpuclusters.fabric.backoff import (
    DEADLINE_SECONDS,
    NO_CONNECTION_SECONDS,
    Fabric,
    LiveTable,
    Patience,
    active_ids,
    listed,
    patiently,
)
from gpuclusters.fabric.checks import (
    require_healthy,
    require_modules,
    require_table,
    require_unused,
    wanted_partitions,
)
from gpuclusters.fabric.lease_markers import (
    left_to_leases,
    look,
    quarantine_warnings,
)
from gpuclusters.fabric.restore import list_or_restore, may_restore, restore

__all__ = [
    "DEADLINE_SECONDS",
    "NO_CONNECTION_SECONDS",
    "Fabric",
    "LiveTable",
    "active_ids",
    "ensure_partitions",
    "observe_partitions",
    "read_partitions",
    "release_partitions",
]

# A refresh asks many boards; one that is not ready by then is reported as it is.
READ_DEADLINE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ensured:
    """The board after a step."""

    live: LiveTable
    wanted: tuple[int, ...]
    """What the step made active: the partitions of the spec, or those its layout was cut into."""
    warnings: tuple[str, ...]
    """What the board cannot do at the moment, where it does not matter for what is wanted."""
    left: tuple[int, ...] = ()
    """Wanted partitions that are down because of leases, which bring them up."""


def ensure_partitions(spec: FabricInputs, fabric: Fabric, *, applied: Sequence[int]) -> Ensured:
    """Make exactly the wanted partitions active; answers the table as it is then.

    A partition with a GPU that leases are recycling, or that is in quarantine, is left to them.

    Args:
        spec: the board and what is wanted.
        fabric: the ports.
        applied: ids that this resource made active before; given back to a fabric manager that
            has forgotten them in a restart, so that running VMs keep their links.

    Raises:
        Refused: the GPUs sit in other modules, the board's table is another one, something
            wanted is not supported, or a partition that has to go is in use; nothing was changed
            then.
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    require_modules(spec, fabric)
    live = list_or_restore(spec, fabric, applied)
    unsupported = require_table(spec, fabric, live)
    wanted = wanted_partitions(spec, fabric, live)
    require_healthy(spec, fabric, live, wanted, unsupported)
    plan = plan_steps(active_ids(live), wanted)
    require_unused(spec, fabric, live, plan.deactivate)
    steps = _steps(spec, live, plan.deactivate, plan.activate)
    if steps:
        live = _carry_out(spec, fabric, live, steps)
    ensured = _ensured(spec, fabric, live, wanted)
    found = [*fabric_health.warnings(spec.partition_table, ensured.live, unsupported)]
    found += ensured.warnings
    for warning in found:
        fabric.reporter.note(f"{fabric.manager.place}: {warning}")
    return Ensured(ensured.live, wanted, tuple(found), ensured.left)


def _ensured(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, wanted: tuple[int, ...]
) -> Ensured:
    """What is active now is what is wanted, but for what leases keep down."""
    if active_ids(live) == wanted:
        return Ensured(live, wanted, ())
    seen = look(fabric)
    live = seen.live or live
    active = set(active_ids(live))
    left = left_to_leases(spec, seen.marks, set(wanted) - active)
    if active | set(left) != set(wanted):
        raise refused(
            fabric.manager.place,
            "fabric.other-set-active",
            f"partitions {listed(active_ids(live)) or 'none'} are active after all steps, instead "
            f"of {listed(wanted) or 'none'}",
            "find out who else changes partitions of this board, then run again",
        )
    if left:
        fabric.reporter.note(
            f"{fabric.manager.place}: partitions {listed(left)} are left to the leases of this "
            "machine, which are recycling GPUs of them or have them in quarantine"
        )
    return Ensured(live, wanted, tuple(quarantine_warnings(spec, seen.marks, left)), left)


def release_partitions(spec: FabricInputs, fabric: Fabric, *, applied: Sequence[int]) -> None:
    """Deactivate the partitions of the spec that are active.

    Args:
        spec: the board and the ids to give up.
        fabric: the ports.
        applied: as with `ensure_partitions`; a restarted fabric manager has to know what is
            active before it can be taken down.

    Raises:
        Refused: one of them is in use; nothing was changed then.
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    live = list_or_restore(spec, fabric, applied)
    named = spec.wanted if spec.layout is None else ()
    ours = [i for i in active_ids(live) if i in {*named, *applied}]
    require_unused(spec, fabric, live, ours)
    steps = _steps(spec, live, ours, ())
    if steps:
        _carry_out(spec, fabric, live, steps)


def read_partitions(fabric: Fabric) -> LiveTable:
    """The live table; empty when the fabric manager waits to be told what was active."""
    try:
        return patiently(fabric, fabric.manager.partitions, deadline=READ_DEADLINE_SECONDS)
    except FabricError as error:
        if error.code != NOT_CONFIGURED:
            raise
        return {}


@dataclass(frozen=True, slots=True)
class Observed:
    """The board as a refresh finds it."""

    live: LiveTable
    left: tuple[int, ...] = ()
    """Wanted partitions that are down because of leases, which bring them up."""
    warnings: tuple[str, ...] = ()
    """Which of them stay down until somebody acts."""


def observe_partitions(spec: FabricInputs, fabric: Fabric, *, wanted: Collection[int]) -> Observed:
    """The live table, and which of the wanted partitions leases keep down at that moment.

    Raises:
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    live = read_partitions(fabric)
    if set(wanted) <= set(active_ids(live)) or not spec.gpus:
        return Observed(live)
    seen = look(fabric)
    live = seen.live or live
    left = left_to_leases(spec, seen.marks, set(wanted) - set(active_ids(live)))
    return Observed(live, left, tuple(quarantine_warnings(spec, seen.marks, left)))


def before_adoption(spec: FabricInputs, fabric: Fabric) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which partitions are active, with those that leases have down for now, and which are wanted.

    Raises:
        Refused: the board's table is another one, or nothing of the layout fits.
        FabricError: the fabric manager refuses or is not ready before the deadline.
    """
    live = read_partitions(fabric)
    active = active_ids(live)
    if not active:
        return (), ()
    wanted = wanted_partitions(spec, fabric, live)
    seen = observe_partitions(spec, fabric, wanted=wanted)
    return tuple(sorted({*active_ids(seen.live), *seen.left})), wanted


def _steps(
    spec: FabricInputs, live: LiveTable, down: Collection[int], up: Collection[int]
) -> list[FabricStep]:
    """All deactivations, then all activations, so that the active set is disjoint after each."""
    coming = [(i, spec.partition_table.partition(i).modules) for i in up]
    going = [(i, live[i].modules) for i in down]
    return [
        *(FabricStep("deactivate", i, modules, _addresses(spec, modules)) for i, modules in going),
        *(FabricStep("activate", i, modules, _addresses(spec, modules)) for i, modules in coming),
    ]


def _addresses(spec: FabricInputs, modules: Sequence[int]) -> tuple[str, ...]:
    """Of the GPUs whose address is known; of those that go down each is, by now."""
    return tuple(spec.gpus[str(m)] for m in modules if str(m) in spec.gpus)


def _carry_out(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, steps: Sequence[FabricStep]
) -> LiveTable:
    """Do the steps, again from where they stopped while the fabric manager says "later"."""
    current = set(active_ids(live))
    left = list(steps)
    patience = Patience(fabric.clock)
    while True:
        change = fabric.manager.change(left)
        for step in left[: change.done]:
            current.discard(step.partition)
            if step.verb == "activate" and step.partition not in change.left:
                current.add(step.partition)
        if change.done:
            patience = Patience(fabric.clock)
        left = left[change.done :]
        if change.held:
            raise refused(
                fabric.manager.place,
                "fabric.held-meanwhile",
                f"could not {change.held} has one of its GPUs by now",
                "stop its VM or wait for its lease to end, then run again: what is done already stays",
            )
        if change.failed is None:
            return (
                change.live
                if change.live is not None
                else patiently(fabric, fabric.manager.partitions)
            )
        if action(change.failed.code, left[0].verb) is Action.LOOK:
            if _is_done(fabric, left[0]):
                left = left[1:]
                continue
            raise change.failed
        patience.wait_or_raise(change.failed)
        if change.failed.code == NOT_CONFIGURED:
            _remind(spec, fabric, sorted(current))


def _is_done(fabric: Fabric, step: FabricStep) -> bool:
    """Whether the table says that this step has nothing left to do."""
    live = patiently(fabric, fabric.manager.partitions)
    active = step.partition in live and live[step.partition].active
    return active == (step.verb == "activate")


def _remind(spec: FabricInputs, fabric: Fabric, current: Sequence[int]) -> None:
    """A fabric manager that restarted between two steps changes nothing until it has its list."""
    live = list_or_restore(spec, fabric, current)
    if not current and not active_ids(live) and may_restore(spec, fabric, current):
        restore(spec, fabric, current)
