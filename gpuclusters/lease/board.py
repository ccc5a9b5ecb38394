"""What is known about one host's GPUs, and what is wanted of the world.

Leases and pods are in the API and survive everything. Attempts and the reading are memory of this process:
after a restart they are gone, and everything is asked again. What follows from a board is in `decide`. All of
it is pure: whoever drives it does the effects and the writing, and may be killed between any two of them.

An effect is idempotent and may be done twice, late, or half. It carries the cycle that it is for, so that an
answer from before a hand-over is never taken for one from after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.fabric.table import Partition
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import ConditionType, Holder, Phase, QuarantineReason, RecyclePolicy

Entry = tuple[int, int, Phase]
"""One stay of a GPU in a phase: module, cycle, phase. What was learnt in one proves nothing in another."""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The host's node is lost: not Ready, or gone. Nobody can be expected to answer there."""

    since: float
    """When that was first seen, by the clock of `decide`'s `now`."""
    message: str
    """One sentence with the node's name."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One GPU's lease. `deadline` is by the clock of `decide`'s `now`; None in a phase without limit."""

    module: int
    phase: Phase
    cycle: int
    holder: Holder | None = None
    deadline: float | None = None
    shown: frozenset[ConditionType] = frozenset()
    """What has been shown in this cycle."""
    reason: str = ""
    message: str = ""
    recheck: str = ""
    """The last recheck that was obeyed, and in `recheck_cycle` the cycle that it began."""
    recheck_cycle: int = 0
    recheck_asked: str = ""
    """The value of the annotation as it is now."""
    disputed: bool = False
    """The device plugin found the kubelet to have given the GPU to another pod than the lease's."""
    last_tenant: str = ""
    """Who had the GPU last, from the end of the holding until it is free."""

    @property
    def entry(self) -> Entry:
        return (self.module, self.cycle, self.phase)


class PodState(StrEnum):
    """What matters of a pod to whoever holds GPUs for it."""

    WAITING = "waiting"
    """Behind its gate."""
    GOING = "going"
    """Its gate is open; on its way to a node, or running."""
    ENDING = "ending"
    """Being deleted; something of it may still run."""
    ENDED = "ended"
    """Succeeded or failed; nothing of it runs."""
    GONE = "gone"
    """Not in the API any more."""


OVER = frozenset({PodState.ENDED, PodState.GONE})
"""Nothing of the pod will use a GPU again."""
LEAVING = OVER | {PodState.ENDING}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that asks for GPUs or has some."""

    uid: str
    state: PodState
    lease: str = ""
    """`<host>/<partition>` that it was let go to; empty behind its gate."""


Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(BaseModel):
    """The longest that each phase of a lease may last, in seconds; afterwards the GPU is quarantined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reserved: Seconds = 60
    activating: Seconds = 120
    admission: Seconds = 180
    """From the lease to the kubelet's allocation; afterwards the pod is deleted and the lease returned."""
    releasing: Seconds = 600
    resetting: Seconds = 180
    scrubbing: Seconds = 900
    verifying: Seconds = 180

    def of(self, phase: Phase) -> float | None:
        """The limit of a phase; None where it may last for ever."""
        return getattr(self, phase.lower(), None)


@dataclass(frozen=True, slots=True)
class Orders:
    """What the machine of one host is told to obey; never changes while it runs."""

    host: str
    partitions: Mapping[int, tuple[int, ...]]
    """Every partition of the board's table: modules by number."""
    offered: tuple[Partition, ...]
    """Those that may be leased."""
    keep_active: bool
    """Whether free partitions stay active; only where those on offer do not overlap."""
    policy: RecyclePolicy
    golden: Golden
    limits: Limits = field(default_factory=Limits)


def holds(lease: Lease, uid: str) -> bool:
    return lease.holder is not None and lease.holder.pod_uid == uid


@dataclass(frozen=True, slots=True)
class ReadBoard:
    """Ask the fabric manager for its partitions, and the machine which GPUs a process holds open."""

    entries: frozenset[Entry]
    """Those that want to know; the answer is younger than their entry into the phase."""


@dataclass(frozen=True, slots=True)
class Withhold:
    """Say on the machine that nobody else may activate a partition with this GPU, and wait for who does."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Unfence:
    """Take the marks of these free GPUs away: whoever comes may activate their partitions."""

    modules: frozenset[int]


@dataclass(frozen=True, slots=True)
class DeactivatePartition:
    """Withhold the GPUs of a partition and take its links down; one that is not active is done."""

    partition: int


@dataclass(frozen=True, slots=True)
class ActivatePartition:
    """Train the links of a partition; its GPUs are withheld no longer. `entries`: who asks, if anybody."""

    partition: int
    entries: frozenset[Entry]


@dataclass(frozen=True)
class _OnGpu:
    module: int
    cycle: int


class Reset(_OnGpu):
    """Secondary bus reset of one GPU."""


class ClearMemory(_OnGpu):
    """Clear the memory of one GPU, with a reset."""


class ReadFirmware(_OnGpu):
    """Read the firmware inventory out of band."""


class ReadKnobs(_OnGpu):
    """Read the switches of one GPU with the tool on its machine."""


@dataclass(frozen=True)
class _OnPod:
    uid: str
    namespace: str
    name: str


class FindPod(_OnPod):
    """Look whether that very pod still exists; asked when it is not where it should be seen."""


@dataclass(frozen=True)
class AdmitPod(_OnPod):
    """Open the pod's gate towards the host that has its GPUs; refused unless it still waits."""

    lease: str


@dataclass(frozen=True)
class DeletePod(_OnPod):
    why: str


Effect = (
    ReadBoard | Withhold | Unfence | DeactivatePartition | ActivatePartition
    | Reset | ClearMemory | ReadFirmware | ReadKnobs | FindPod | AdmitPod | DeletePod
)  # fmt: skip

FABRIC = (ReadBoard, Unfence, DeactivatePartition, ActivatePartition)
"""One at a time per board: what one reads the other changes."""


@dataclass(frozen=True, slots=True)
class BoardSeen:
    """The answer of `ReadBoard`."""

    supported: frozenset[int]
    """Partitions that the fabric manager offers; one with a broken GPU is missing."""
    active: frozenset[int]
    users: frozenset[int]
    """Modules that a process holds open."""
    withheld: frozenset[int] = frozenset()
    """Modules whose partitions nobody but the leases may activate."""


Result = BoardSeen | Mapping[str, str] | Mapping[str, str | None] | Pod | None


@dataclass(frozen=True, slots=True)
class Succeeded:
    effect: Effect
    result: Result = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The world says no, and would say so again: a verdict. `reason` where the effect has several."""

    effect: Effect
    message: str
    reason: QuarantineReason | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody knows whether it was done; asked again. `reason`: of the quarantine if that lasts."""

    effect: Effect
    message: str
    reason: QuarantineReason | None = None


Outcome = Succeeded | Refused | Failed


FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
LOOK_AGAIN_SECONDS = 2.0
"""How old a reading may be that said "in use", before it is taken anew."""

_RANK = {state: rank for rank, state in enumerate(PodState)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an effect fares: in flight, answered (`outcome`), or to be tried again at a time."""

    outcome: Succeeded | Refused | None = None
    in_flight: bool = False
    failures: int = 0
    again_at: float = 0
    message: str = ""
    """What the last failure said."""
    reason: QuarantineReason | None = None
    """Why the GPU is quarantined if it was the last one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the fabric manager and the machine said last, corrected by what was done since."""

    seen: BoardSeen
    entries: frozenset[Entry]
    at: float


@dataclass(frozen=True, slots=True)
class Board:
    """All that is known about one host; each method answers the board after something happened."""

    orders: Orders
    leases: Mapping[int, Lease] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    attempts: Mapping[Effect, Attempt] = field(default_factory=dict)
    reading: Reading | None = None
    away: NodeLost | None = None
    """Set while the host's node is lost."""
    heard: bool = True
    """Whether the machine has answered since it came back, from an absence or from a boot."""

    @property
    def serves(self) -> bool:
        """Whether its free GPUs may be given to somebody: one that was away has to answer first."""
        return self.away is None and self.heard

    def with_lease(self, lease: Lease) -> Board:
        """A lease as it is stored now. What was learnt about an earlier stay of the GPU is dropped."""
        before = self.leases.get(lease.module)
        leases = {**self.leases, lease.module: lease}
        if before is not None and before.entry == lease.entry:
            return replace(self, leases=leases)
        return replace(self, leases=leases, attempts=self._without(lease.module, lease.entry))

    def without_lease(self, module: int) -> Board:
        """The lease is not there (any more): what was learnt about the GPU says nothing about another."""
        leases = {key: lease for key, lease in self.leases.items() if key != module}
        return replace(self, leases=leases, attempts=self._without(module, None), reading=None)

    def with_pod(self, pod: Pod) -> Board:
        """A pod as it is now. Pods only go forward: what says otherwise is old."""
        before = self.pods.get(pod.uid)
        if before is not None and _RANK[before.state] > _RANK[pod.state]:
            return self
        return replace(self, pods={**self.pods, pod.uid: pod})

    def without_pod(self, uid: str) -> Board:
        """Nothing is known about the pod, which does not mean that it is gone."""
        return replace(self, pods={key: pod for key, pod in self.pods.items() if key != uid})

    def after_boot(self) -> Board:
        """The machine has booted: what was read of it is old, and marks on it may be gone."""
        kept = {
            e: a for e, a in self.attempts.items() if a.in_flight or not isinstance(e, Withhold)
        }
        return replace(self, attempts=kept, reading=None, heard=False)

    def with_away(self, away: NodeLost | None) -> Board:
        """The node is lost, or is there. When it is back, what was read of the machine before is old."""
        if away is None and self.away is not None:
            return replace(self, away=None, reading=None, heard=False)
        return replace(self, away=away)

    def asked(self, effect: Effect) -> Board:
        before = self.attempts.get(effect, Attempt())
        return self._noted(effect, replace(before, in_flight=True))

    def learnt(self, outcome: Outcome, now: float) -> Board:
        effect = outcome.effect
        if effect not in self.attempts:
            return self  # of a stay that is over
        match outcome:
            case Succeeded(ReadBoard(entries), BoardSeen() as seen):
                reading = Reading(seen, entries, now)
                return replace(self._dropped(effect), reading=reading, heard=True)
            case Succeeded(DeactivatePartition(partition)):
                return self._dropped(effect)._with_partition(partition, active=False)
            case Succeeded(Unfence(modules)):
                return self._dropped(effect)._with_withheld(modules, withheld=False)
            case Succeeded(Withhold((module, _, _))):
                return self._answered(outcome)._with_withheld([module], withheld=True)
            case Succeeded(ActivatePartition(partition, entries)):
                board = self._with_partition(partition, active=True)
                return board._answered(outcome) if entries else board._dropped(effect)
            case Succeeded(FindPod() | AdmitPod() | DeletePod(), Pod() as pod):
                return self._dropped(effect).with_pod(pod)
            case Succeeded() if not isinstance(effect, ReadBoard | FindPod | AdmitPod | DeletePod):
                return self._answered(outcome)
            case Refused() if not isinstance(effect, _TRIED_AGAIN):
                board = self._answered(outcome)
            case Succeeded():
                board = self._failed(Failed(effect, "the answer says nothing"), now)
            case Refused(message=message):
                board = self._failed(Failed(effect, message), now)
            case Failed():
                board = self._failed(outcome, now)
        if isinstance(effect, ActivatePartition | DeactivatePartition):
            return replace(board, reading=None)  # it may have been done all the same
        if isinstance(effect, AdmitPod | DeletePod):
            return board.without_pod(effect.uid)  # likewise
        return board

    def _without(self, module: int, entry: Entry | None) -> dict[Effect, Attempt]:
        return {
            effect: attempt
            for effect, attempt in self.attempts.items()
            if not self._outdated(effect, module, entry)
        }

    def _outdated(self, effect: Effect, module: int, entry: Entry | None) -> bool:
        """Whether it was about an earlier stay of the GPU; effects on the fabric count while in flight."""
        match effect:
            case ActivatePartition(partition, entries):
                idle = not entries and module in self.orders.partitions.get(partition, ())
                mine = any(e[0] == module and e != entry for e in entries)
                # One that succeeded for several GPUs is needed until the last of them is leased.
                rest = any(
                    e[0] != module and (lease := self.leases.get(e[0])) and lease.entry == e
                    for e in entries
                )
                return (idle or (mine and not rest)) and not self.attempts[effect].in_flight
            case Withhold(of):
                mine = of[0] == module and of != entry
                return mine and not self.attempts[effect].in_flight
            case (
                ReadBoard() | Unfence() | DeactivatePartition()
                | FindPod() | AdmitPod() | DeletePod()
            ):  # fmt: skip
                return False
            case _:
                return effect.module == module and (entry is None or effect.cycle != entry[1])

    def _with_partition(self, partition: int, *, active: bool) -> Board:
        if self.reading is None:
            return self
        seen = self.reading.seen
        changed = seen.active | {partition} if active else seen.active - {partition}
        board = replace(self, reading=replace(self.reading, seen=replace(seen, active=changed)))
        modules = self.orders.partitions.get(partition, ())
        return board._with_withheld(modules, withheld=not active)

    def _with_withheld(self, modules: Collection[int], *, withheld: bool) -> Board:
        if self.reading is None:
            return self
        seen = self.reading.seen
        changed = seen.withheld.union(modules) if withheld else seen.withheld.difference(modules)
        return replace(self, reading=replace(self.reading, seen=replace(seen, withheld=changed)))

    def _noted(self, effect: Effect, attempt: Attempt) -> Board:
        return replace(self, attempts={**self.attempts, effect: attempt})

    def _dropped(self, effect: Effect) -> Board:
        kept = {key: attempt for key, attempt in self.attempts.items() if key != effect}
        return replace(self, attempts=kept)

    def _answered(self, outcome: Succeeded | Refused) -> Board:
        return self._noted(outcome.effect, Attempt(outcome=outcome))

    def _failed(self, failed: Failed, now: float) -> Board:
        failures = self.attempts[failed.effect].failures + 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        attempt = Attempt(
            failures=failures, again_at=now + pause, message=failed.message, reason=failed.reason
        )
        return self._noted(failed.effect, attempt)


_TRIED_AGAIN = (
    ReadBoard, Withhold, Unfence, DeactivatePartition, FindPod, AdmitPod, DeletePod
)  # fmt: skip
"""A refusal of these is no verdict about a GPU."""
