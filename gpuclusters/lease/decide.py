"""What follows from what is known about one host's GPUs; from Resetting on, each GPU by itself.

Doing a plan twice does no harm. What is not known is asked; what cannot be known in time closes the GPU.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuclusters.fabric.table import Partition
from gpuclusters.lease.board import (
    ActivatePartition,
    Board,
    ClearMemory,
    Effect,
    Lease,
    ReadFirmware,
    ReadKnobs,
    Refused,
    Reset,
    Succeeded,
    Unfence,
)
from gpuclusters.lease.firmware import firmware_findings, knob_findings
from gpuclusters.lease.holding import HELD_OPEN, decide_absence, decide_groups
from gpuclusters.lease.model import ConditionType, Phase, QuarantineReason, RecyclePolicy
from gpuclusters.lease.plan import Draft, Plan


def decide_recycling(draft: Draft) -> None:
    """What follows for all GPUs that nobody holds."""
    steps = {
        Phase.RESETTING: _reset,
        Phase.SCRUBBING: _scrub,
        Phase.VERIFYING: _verify,
        Phase.QUARANTINED: _recheck,
    }
    for _, lease in sorted(draft.board.leases.items()):
        if lease.disputed and lease.phase in _NOBODYS:
            said = "the kubelet lists the GPU for a pod although it is nobody's"
            draft.quarantine(lease, QuarantineReason.HELD_BY_ANOTHER_POD, said)
        elif step := steps.get(lease.phase):
            step(draft, lease)
    if draft.board.orders.keep_active:
        for partition in draft.board.orders.offered:
            _keep_active(draft, partition)
    else:
        _give_back(draft)


_NOBODYS = frozenset({Phase.FREE, Phase.RESETTING, Phase.SCRUBBING, Phase.VERIFYING})
"""Phases in which no pod can have the GPU: what was shown is void if one has it all the same."""


def _reset(draft: Draft, lease: Lease) -> None:
    """Nothing may use the GPU, no partition with it may be active, or become so; then reset it."""
    reset = Reset(lease.module, lease.cycle)
    match draft.outcome(reset):
        case Succeeded():
            draft.show(lease, Phase.SCRUBBING, ConditionType.RESET_DONE, "the GPU was reset")
            return
        case Refused(message=message):
            draft.quarantine(lease, QuarantineReason.RESET_FAILED, message)
            return
        case None:
            pass
    if draft.expired(lease):
        reading = draft.board.reading
        if reading is not None and lease.module in reading.seen.users:
            draft.quarantine(lease, QuarantineReason.IN_USE, HELD_OPEN)
        else:
            draft.quarantine_late(
                lease, QuarantineReason.RESET_TIMED_OUT, "it could not be reset in time"
            )
        return
    # The board is read afterwards: what a stack had begun to activate before is active by then.
    if not draft.withheld(lease):
        return
    entries, modules = [lease.entry], [lease.module]
    reading = draft.unused(entries, modules)
    if reading is not None and draft.cleared(entries, reading, modules, None):
        draft.want(reset)


def _scrub(draft: Draft, lease: Lease) -> None:
    clear = ClearMemory(lease.module, lease.cycle)
    match draft.outcome(clear):
        case Succeeded():
            why = "its memory was cleared"
            draft.show(lease, Phase.VERIFYING, ConditionType.MEMORY_CLEARED, why)
        case Refused(message=message):
            draft.quarantine(lease, QuarantineReason.MEMORY_NOT_CLEARED, message)
        case None if draft.expired(lease):
            why = "its memory could not be cleared in time"
            draft.quarantine_late(lease, QuarantineReason.SCRUB_TIMED_OUT, why)
        case None:
            draft.want(clear)


def _verify(draft: Draft, lease: Lease) -> None:
    """Compare with the golden set, as far as the policy says; both readings are of this stay.

    Knobs are read after the last reset, since a reset is what makes a turned knob take effect.
    """
    orders = draft.board.orders
    golden = orders.golden
    if orders.policy is RecyclePolicy.RESET_ONLY:
        draft.show(lease, Phase.FREE, None, "reset and cleared; its firmware is not compared")
        return
    compared = bool(golden.versions or golden.knobs)
    if orders.policy is RecyclePolicy.FULL and not golden.versions:
        said = "there is no golden set to compare its firmware with; state one, then recheck"
        draft.quarantine(lease, QuarantineReason.NO_GOLDEN_SET, said)
        return
    checks: list[tuple[Effect, QuarantineReason]] = []
    if golden.versions:
        checks.append((ReadFirmware(lease.module, lease.cycle), QuarantineReason.FIRMWARE_CHANGED))
    if golden.knobs:
        checks.append((ReadKnobs(lease.module, lease.cycle), QuarantineReason.KNOBS_CHANGED))
    verdicts = [_finding(draft, lease, effect, changed) for effect, changed in checks]
    for reason, finding in filter(None, verdicts):
        if finding:
            draft.quarantine(lease, reason, finding)
            return
    if None in verdicts:
        if draft.expired(lease):
            reason = _late(draft, [effect for effect, _ in checks])
            why = "its firmware and knobs could not be read in time"
            draft.quarantine_late(lease, reason, why)
        else:
            for effect, _ in checks:
                draft.want(effect)
        return
    if orders.policy is RecyclePolicy.QUARANTINE_ALWAYS and lease.recheck_cycle != lease.cycle:
        said = "the recycle policy asks for an operator after every tenant; recheck to free it"
        draft.quarantine(lease, QuarantineReason.POLICY, said)
        return
    shown = ConditionType.FIRMWARE_VERIFIED if compared else None
    draft.show(lease, Phase.FREE, shown, "firmware and knobs are as they must be")


def _finding(
    draft: Draft, lease: Lease, effect: Effect, changed: QuarantineReason
) -> tuple[QuarantineReason, str] | None:
    """What a reading says against the GPU, nothing is the empty string; None when it is not there yet."""
    match draft.outcome(effect):
        case Succeeded(result=dict(result)):
            golden = draft.board.orders.golden
            if isinstance(effect, ReadFirmware):
                return changed, "; ".join(firmware_findings(golden, lease.module, result))
            return changed, "; ".join(knob_findings(golden, result))
        case Succeeded():
            return changed, "the answer cannot be compared"
        case Refused(message=message, reason=reason):
            return reason or changed, message
        case None:
            return None


def _late(draft: Draft, effects: Sequence[Effect]) -> QuarantineReason:
    """Why what was asked again and again was not read in time, where its last failure says it."""
    attempts = filter(None, map(draft.board.attempts.get, effects))
    reasons = (attempt.reason for attempt in attempts if attempt.reason)
    return next(reasons, QuarantineReason.VERIFICATION_TIMED_OUT)


def _recheck(draft: Draft, lease: Lease) -> None:
    """Only an operator takes a GPU out of quarantine, and not while the kubelet lists it for somebody."""
    draft.withheld(lease)
    if lease.holder is not None:
        if not lease.holder.allocated:
            draft.keep(lease, replace(lease, holder=None), "the kubelet has let the GPU go")
        return
    asked = lease.recheck_asked
    if lease.disputed or not asked or asked == lease.recheck:
        return
    again = replace(lease, recheck=asked, recheck_cycle=lease.cycle + 1)
    draft.move(again, Phase.RESETTING, "an operator asked for a recheck")


def _keep_active(draft: Draft, partition: Partition) -> None:
    """Free partitions of a declared layout are active; one still withheld is activated once more."""
    leases = [draft.board.leases.get(module) for module in partition.modules]
    free = [lease for lease in leases if lease is not None and lease.phase is Phase.FREE]
    if len(free) != partition.size:
        return
    activate = ActivatePartition(partition.id, frozenset())
    refused = draft.outcome(activate)
    if isinstance(refused, Refused):
        if refused.reason is QuarantineReason.NVLINK_ERROR:
            for lease in free:
                draft.quarantine(lease, QuarantineReason.NVLINK_ERROR, refused.message)
        return
    reading = draft.board.reading
    if reading is None:
        draft.reading(lease.entry for lease in free)
        return
    active = reading.seen.active
    if partition.id not in reading.seen.supported:
        return
    if partition.id in active and reading.seen.withheld.isdisjoint(partition.modules):
        return
    others = active - {partition.id}
    taken = {m for n in others for m in draft.board.orders.partitions.get(n, ())}
    if taken.isdisjoint(partition.modules):
        draft.want(activate)


def _give_back(draft: Draft) -> None:
    """Where a partition is active only while somebody has it, free GPUs are left to whoever comes."""
    free = [lease for lease in draft.board.leases.values() if lease.phase is Phase.FREE]
    reading = draft.board.reading
    if reading is None:
        draft.reading(lease.entry for lease in free)
        return
    if modules := reading.seen.withheld.intersection(lease.module for lease in free):
        draft.want(Unfence(modules))


def decide(board: Board, now: float) -> Plan:
    """What to store, to start and to wait for; `now` is by the clock of the deadlines, which never jumps."""
    draft = Draft(board, now)
    decide_groups(draft)
    decide_recycling(draft)
    decide_absence(draft)
    return draft.plan()
