"""Talking to a fabric manager that restarts, initialises and forgets: when to ask again, what to tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuclusters.domain.fabric_codes import (
    NO_CONNECTION,
    NOT_CONFIGURED,
    PASSING_CODES,
    FabricError,
)
from gpuclusters.domain.fabric_state import FabricInputs, must_restore
from gpuclusters.domain.ports import (
    Clock,
    FabricManager,
    Journal,
    LivePartition,
    ModuleMap,
    PciDevices,
)
from gpuclusters.domain.refusals import RefusalError

# A fabric manager with eight GPUs and four switches initialises within a minute; the second one
# is for a service VM under load.
DEADLINE_SECONDS = 120.0
# A restart drops the port for a few seconds. Longer than this means that nothing listens there.
NO_CONNECTION_SECONDS = 20.0
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
    modules: ModuleMap | None = None


class Patience:
    """Growing pauses up to a deadline, shared by the tries of one thing."""

    def __init__(self, clock: Clock, deadline: float = DEADLINE_SECONDS) -> None:
        self._clock = clock
        self._deadline = deadline
        self._started = clock.now()
        self._pause = FIRST_PAUSE_SECONDS

    def wait_or_raise(self, error: FabricError) -> None:
        """Wait before the next try; raises the error if it does not pass or it is too late."""
        limit = self._deadline
        if error.code == NO_CONNECTION:
            limit = min(limit, NO_CONNECTION_SECONDS)
        late = self._clock.now() - self._started + self._pause > limit
        if late or error.code not in PASSING_CODES:
            raise error
        self._clock.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)


def patiently(fabric: Fabric, call: Callable[[], T], *, deadline: float = DEADLINE_SECONDS) -> T:
    """The call, again with growing pauses while the fabric manager says "later"."""
    patience = Patience(fabric.clock, deadline)
    while True:
        try:
            return call()
        except FabricError as error:
            patience.wait_or_raise(error)


def active_ids(live: LiveTable) -> tuple[int, ...]:
    """The ids of the active partitions, in order."""
    return tuple(sorted(p.id for p in live.values() if p.active))


def list_or_restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """The live table, after giving a forgetful fabric manager its active set back.

    Raises:
        RefusalError: it was told and does not know, while VMs run on what it forgot.
        FabricError: it refuses or is not ready before the deadline.
    """

    def attempt() -> LiveTable:
        try:
            live = fabric.manager.partitions()
        except FabricError as error:
            # -8 has two meanings: still initialising, or waiting for the list after a restart.
            # To a fabric manager that initialises the list says nothing, it answers -8 again.
            if error.code != NOT_CONFIGURED or not may_restore(spec, fabric, applied):
                raise
        else:
            if not must_restore(active_ids(live), applied):
                return live
            try:
                return restore(spec, fabric, applied)
            except FabricError as error:
                # It answered, so it may well remember, and somebody has deactivated all by hand.
                if error.code in PASSING_CODES or held_gpus(spec, fabric, live, applied):
                    raise
                return live
        return restore(spec, fabric, applied)

    return patiently(fabric, attempt)


def restore(spec: FabricInputs, fabric: Fabric, applied: Sequence[int]) -> LiveTable:
    """Tell the fabric manager what is active, also that nothing is, and look whether it took it in."""
    fabric.manager.set_activated(applied)
    live = fabric.manager.partitions()
    fabric.journal.note(
        f"{fabric.manager.place}: the fabric manager had forgotten what is active; "
        f"told it: partitions {listed(applied) or 'none'}"
    )
    lost = [i for i in applied if i in live and not live[i].active]
    held = held_gpus(spec, fabric, live, lost)
    if held:
        # Published versions of fmpm send an empty list whatever they are given. Without users
        # that does no harm: what is wanted is activated anew.
        raise RefusalError(
            fabric.manager.place,
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


def held_gpus(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, ids: Collection[int]
) -> list[str]:
    """GPUs of these partitions that a process holds, as far as their addresses are known."""
    users = users_of(spec, fabric, {m for i in ids for m in live[i].modules})
    return [
        f"GPU {module} ({spec.gpus[str(module)]}) by process {listed(pids)}"
        for module, pids in users.items()
    ]


def users_of(
    spec: FabricInputs, fabric: Fabric, modules: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """Processes by module, of those GPUs that have any; one round trip."""
    addresses = {spec.gpus[str(m)]: m for m in sorted(modules) if str(m) in spec.gpus}
    found = fabric.pci.inspect(list(addresses)) if addresses else {}
    return {addresses[f.address]: f.users for f in found.values() if f.users}


def listed(values: Collection[int]) -> str:
    """Numbers as errors show them."""
    return ", ".join(map(str, values))
