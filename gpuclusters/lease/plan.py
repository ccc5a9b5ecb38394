"""What follows from a board: changes to be stored, effects to be started, and when to look again."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from gpuclusters.lease.board import (
    FABRIC,
    LOOK_AGAIN_SECONDS,
    ActivatePartition,
    Board,
    DeactivatePartition,
    Effect,
    Entry,
    Lease,
    ReadBoard,
    Reading,
    Refused,
    Succeeded,
    Unfence,
    Withhold,
)
from gpuclusters.lease.model import HELD, ConditionType, Phase, QuarantineReason


@dataclass(frozen=True, slots=True)
class Change:
    """A lease's next status, to be stored only if it is still as it was before."""

    before: Lease
    after: Lease
    why: str
    """One sentence for the event."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. Changes come first: effects are wanted of a board on which they are stored."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    wake: float | None
    """When time alone makes a difference next; None if it does not."""


STANDS_STILL = frozenset({Phase.RELEASING, Phase.RESETTING, Phase.SCRUBBING, Phase.VERIFYING})
"""Phases that have no deadline while the node is lost: that nobody answers there says nothing of a GPU."""


class Draft:
    """A plan in the making, for one board at one moment."""

    def __init__(self, board: Board, now: float) -> None:
        self.board = board
        self.now = now
        self._changes: dict[int, Change] = {}
        self._effects: dict[Effect, None] = {}
        self._readers: set[Entry] = set()
        self._wake: float | None = None
        self._fabric_busy = any(
            attempt.in_flight and isinstance(effect, FABRIC)
            for effect, attempt in board.attempts.items()
        )

    def plan(self) -> Plan:
        if self._readers:
            self.want(ReadBoard(frozenset(self._readers | self._served())))
        return Plan(tuple(self._changes.values()), tuple(self._effects), self._wake)

    def _served(self) -> set[Entry]:
        """Those whom the present reading serves: a new one must serve them too, or they would ask next."""
        if self.board.reading is None:
            return set()
        current = {lease.entry for lease in self.board.leases.values()}
        return current & self.board.reading.entries

    def wake_at(self, at: float) -> None:
        """Time makes a difference at this moment."""
        if at > self.now and (self._wake is None or at < self._wake):
            self._wake = at

    def expired(self, lease: Lease) -> bool:
        """Whether the phase has lasted too long; never while the node is lost, where time stands still."""
        if lease.deadline is None or (self.board.away is not None and lease.phase in STANDS_STILL):
            return False
        self.wake_at(lease.deadline)
        return lease.deadline <= self.now

    def outcome(self, effect: Effect) -> Succeeded | Refused | None:
        """How the effect ended; None if it has not."""
        attempt = self.board.attempts.get(effect)
        return None if attempt is None else attempt.outcome

    def want(self, effect: Effect) -> None:
        """Ask for the effect, unless it is in flight, answered, or was just tried in vain."""
        attempt = self.board.attempts.get(effect)
        if attempt is not None:
            if attempt.in_flight or attempt.outcome is not None:
                return
            if attempt.again_at > self.now:
                self.wake_at(attempt.again_at)
                return
        fabric = isinstance(effect, FABRIC)
        if self._crosses(effect) or (fabric and self._fabric_busy):
            return
        self._fabric_busy = self._fabric_busy or fabric
        self._effects[effect] = None

    def withheld(self, lease: Lease) -> bool:
        """Whether nobody else can activate a partition with the GPU during this stay; else asks for it."""
        effect = Withhold(lease.entry)
        if self.outcome(effect) is not None:
            return True
        self.want(effect)
        return False

    def _crosses(self, effect: Effect) -> bool:
        """Whether a mark that the effect sets is just being taken away, or the other way round."""
        sets, modules = self._marks(effect)
        under_way = (e for e, attempt in self.board.attempts.items() if attempt.in_flight)
        return any(
            theirs is not sets and not them.isdisjoint(modules)
            for theirs, them in map(self._marks, under_way)
        )

    def _marks(self, effect: Effect) -> tuple[bool, frozenset[int]]:
        match effect:
            case Withhold((module, _, _)):
                return True, frozenset({module})
            case Unfence(modules):
                return False, modules
            case ActivatePartition(partition):
                return False, frozenset(self.board.orders.partitions.get(partition, ()))
            case _:
                return False, frozenset()

    def reading(self, entries: Iterable[Entry]) -> Reading | None:
        """What is so on the board since each of these entries; None when it must be asked first."""
        wanted = frozenset(entries)
        reading = self.board.reading
        if reading is None or not wanted <= reading.entries:
            self._readers |= wanted
            return None
        return reading

    def look_again(self, entries: Iterable[Entry], reading: Reading) -> None:
        """What the reading said stands in the way: read again after a while."""
        again_at = reading.at + LOOK_AGAIN_SECONDS
        self.wake_at(again_at)
        if again_at <= self.now:
            self._readers |= frozenset(entries)

    def unused(self, entries: Iterable[Entry], modules: Collection[int]) -> Reading | None:
        """`reading`, if no process holds one of these GPUs open; None: it is asked again."""
        entries = frozenset(entries)
        reading = self.reading(entries)
        if reading is None or reading.seen.users.isdisjoint(modules):
            return reading
        self.look_again(entries, reading)
        return None

    def cleared(
        self, entries: Iterable[Entry], reading: Reading, modules: Collection[int], uid: str | None
    ) -> bool:
        """Whether no partition with these GPUs is active; one that is goes down once it is unused."""
        for number in sorted(reading.seen.active):
            theirs = self.board.orders.partitions.get(number, ())
            if not set(modules).isdisjoint(theirs):
                if self.held_by_others(theirs, uid) or not reading.seen.users.isdisjoint(theirs):
                    self.look_again(entries, reading)
                else:
                    self.want(DeactivatePartition(number))
                return False
        return True

    def held_by_others(self, modules: Iterable[int], uid: str | None) -> bool:
        """Whether somebody else may be using one of these GPUs."""
        for lease in filter(None, map(self.board.leases.get, modules)):
            if lease.holder is None or lease.phase is Phase.RESERVED:
                continue
            given_back = lease.phase is Phase.QUARANTINED and not lease.holder.allocated
            if not given_back and lease.holder.pod_uid != uid:
                return True
        return False

    def move(self, lease: Lease, phase: Phase, why: str) -> None:
        """The lease enters another phase; holder and evidence go where the phase has none."""
        limit = self.board.orders.limits.of(phase)
        after = replace(
            lease,
            phase=phase,
            deadline=None if limit is None else self.now + limit,
            reason="",
            message="",
            holder=lease.holder if phase in HELD else None,
            last_tenant="" if phase is Phase.FREE or phase in HELD else _last_tenant(lease),
        )
        if phase is Phase.LEASED:
            after = replace(after, shown=lease.shown | {ConditionType.PARTITION_ACTIVE})
        elif phase is Phase.RESETTING:
            after = replace(after, shown=frozenset(), cycle=lease.cycle + 1)
        self.keep(lease, after, why)

    def show(self, lease: Lease, phase: Phase, condition: ConditionType | None, why: str) -> None:
        """The lease enters another phase because something was shown."""
        shown = lease.shown if condition is None else lease.shown | {condition}
        self.move(replace(lease, shown=shown), phase, why)

    def quarantine(self, lease: Lease, reason: QuarantineReason, message: str) -> None:
        """Take the GPU out of service. Whoever still has it allocated stays its holder."""
        holder = lease.holder if lease.holder is not None and lease.holder.allocated else None
        after = replace(
            lease,
            phase=Phase.QUARANTINED,
            deadline=None,
            holder=holder,
            last_tenant=_last_tenant(lease),
            reason=reason.value,
            message=f"{message[:960]} [{reason.code}]",
            # A recheck that was asked for before the reason for it was known is not one.
            recheck=lease.recheck_asked,
        )
        self.keep(lease, after, f"{reason.value}: {message}")

    def quarantine_late(self, lease: Lease, reason: QuarantineReason, why: str) -> None:
        """Take the GPU out of service because the time of its phase is over."""
        self.quarantine(lease, reason, f"{why} ({self.last_failure(lease.entry)})")

    def last_failure(self, entry: Entry) -> str:
        """What the newest failed attempt on the GPU's way out of this phase said."""
        said = [
            attempt.message
            for effect, attempt in self.board.attempts.items()
            if attempt.message and _concerns(effect, entry)
        ]
        return said[-1] if said else "nothing answered"

    def keep(self, before: Lease, after: Lease, why: str) -> None:
        """The lease changes; what was decided about it first stands."""
        stored = self.board.leases[before.module]
        self._changes.setdefault(before.module, Change(stored, after, why))


def _last_tenant(lease: Lease) -> str:
    """Who had the GPU last, to be said once nobody has it."""
    return lease.last_tenant if lease.holder is None else lease.holder.tenant


def _concerns(effect: Effect, entry: Entry) -> bool:
    match effect:
        case ReadBoard(entries) | ActivatePartition(_, entries):
            return entry in entries
        case Withhold(of):
            return of == entry
    return getattr(effect, "module", entry[0]) == entry[0]
