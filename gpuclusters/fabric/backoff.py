"""Talking to a fabric manager that restarts and initialises: when to ask again. And who uses its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain.fabric_codes import NO_CONNECTION, PASSING_CODES, FabricError
from gpuclusters.domain.fabric_state import FabricInputs
from gpuclusters.domain.ports import FabricManager, LivePartition, ModuleMap, PciDevices

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
    reporter: Reporter
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
