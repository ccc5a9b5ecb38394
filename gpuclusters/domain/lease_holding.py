"""From Reserved to Releasing: what follows for the GPUs that a pod has.

Each rule makes sense of a group whose leases are in different phases, since whoever changes them may be
killed between any two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuclusters.domain.lease import LEAVING, OVER, Entry, Lease, PodState, Reason
from gpuclusters.domain.lease_absence import give_up, is_given_up
from gpuclusters.domain.lease_admission import admit
from gpuclusters.domain.lease_board import Board, Reading
from gpuclusters.domain.lease_effects import (
    ActivatePartition,
    DeactivatePartition,
    DeletePod,
    Refused,
    Succeeded,
)
from gpuclusters.domain.lease_group import Group, groups
from gpuclusters.domain.lease_plan import Change, Draft
from gpuclusters.domain.lease_resource import Holder, Phase


def reserve(board: Board, holder: Holder, now: float) -> tuple[Change, ...]:
    """The changes that reserve a partition for a waiting pod.

    None when a GPU of it is not free, the pod does not wait, or the pod has GPUs of this host already.
    """
    pod = board.pods.get(holder.pod_uid)
    if pod is None or pod.state is not PodState.WAITING:
        return ()
    if any(
        x.holder is not None and x.holder.pod_uid == holder.pod_uid for x in board.leases.values()
    ):
        return ()
    draft = Draft(board, now)
    for module in holder.gpus:
        lease = board.leases.get(module)
        if lease is None or lease.phase is not Phase.FREE or lease.disputed:
            return ()
        draft.move(
            replace(lease, holder=holder),
            Phase.RESERVED,
            f"for pod {holder.namespace}/{holder.pod}",
        )
    return draft.plan().changes


def decide_groups(draft: Draft) -> None:
    """What follows for all GPUs that somebody holds."""
    present = list(groups(draft.board))
    for group in present:
        if group.pod is None:
            draft.want_pod(group.holder)
        elif not group.wanted or not group.whole or group.disputed:
            _dissolve(draft, group)
        elif is_given_up(draft, group):
            give_up(draft, group)
        elif reserved := group.within(Phase.RESERVED):
            _begin(draft, reserved)
        elif activating := group.within(Phase.ACTIVATING):
            _activate(draft, group, activating)
        for lease in group.within(Phase.RESERVED, Phase.ACTIVATING):
            _give_up_late(draft, lease)
        if releasing := group.within(Phase.RELEASING):
            _release(draft, group, releasing)
    admit(draft, present)


def _dissolve(draft: Draft, group: Group) -> None:
    """The pod does not need the GPUs, or cannot have all of them: none is kept."""
    if group.disputed:
        why = "the kubelet has given a GPU of the partition to another pod"
    else:
        why = "its pod ends" if group.whole else "another GPU of the partition was lost"
    for lease in group.within(Phase.RESERVED):
        draft.move(lease, Phase.FREE, f"{why}; nothing was done to the GPU yet")
    for lease in group.within(Phase.ACTIVATING, Phase.LEASED):
        draft.move(lease, Phase.RELEASING, why)


def _begin(draft: Draft, reserved: Sequence[Lease]) -> None:
    for lease in reserved:
        draft.move(lease, Phase.ACTIVATING, "all GPUs of the partition are reserved")


def _give_up_late(draft: Draft, lease: Lease) -> None:
    if not draft.expired(lease):
        return
    if lease.phase is Phase.RESERVED:
        draft.move(
            lease, Phase.FREE, "the reservation lasted too long; nothing was done to the GPU"
        )
    elif draft.board.away is None:
        failure = draft.last_failure(lease.entry)
        draft.quarantine(
            lease,
            Reason.ACTIVATION_TIMED_OUT,
            f"its partition could not be activated in time ({failure})",
        )


def _activate(draft: Draft, group: Group, activating: Sequence[Lease]) -> None:
    """Down with whatever is active there, up with the partition: links are trained after the reset."""
    partition = group.holder.partition
    entries = frozenset(lease.entry for lease in activating)
    if shown := _activated(draft, partition, entries):
        for lease in activating:
            if lease.entry in shown:
                draft.move(lease, Phase.LEASED, f"partition {partition} is active")
        return
    if refusal := _refusal(draft, partition, entries):
        for lease in group.within(Phase.ACTIVATING):
            reason = Reason(refusal.reason) if refusal.reason else Reason.NVLINK_ERROR
            draft.quarantine(lease, reason, refusal.message)
        return
    if any(_on_its_way(draft, partition, entry) for entry in entries):
        return
    reading = draft.reading(entries)
    if reading is None:
        return
    if bad := _unusable(draft, group, reading):
        for lease in activating:
            if lease.module in bad:
                draft.quarantine(lease, *bad[lease.module])
            else:
                draft.move(lease, Phase.RELEASING, "another GPU of the partition was lost")
        return
    modules = set(group.holder.gpus)
    for other in sorted(reading.seen.active):
        theirs = draft.board.orders.partitions.get(other, ())
        if modules.isdisjoint(theirs):
            continue
        if draft.held_by_others(theirs, group.holder.pod_uid) or _used(reading, theirs):
            draft.look_again(entries, reading)
        else:
            draft.want(DeactivatePartition(other))
        return
    draft.want(ActivatePartition(partition, entries))


def _activated(draft: Draft, partition: int, entries: frozenset[Entry]) -> frozenset[Entry]:
    """Those for which the partition was activated during their stay."""
    shown: set[Entry] = set()
    for effect, attempt in draft.board.attempts.items():
        match effect, attempt.outcome:
            case ActivatePartition(number, asked), Succeeded() if number == partition:
                shown |= asked & entries
    return frozenset(shown)


def _refusal(draft: Draft, partition: int, entries: frozenset[Entry]) -> Refused | None:
    for effect, attempt in draft.board.attempts.items():
        match effect, attempt.outcome:
            case ActivatePartition(number, asked), Refused() as refused:
                if number == partition and asked & entries:
                    return refused
    return None


def _on_its_way(draft: Draft, partition: int, entry: Entry) -> bool:
    return any(
        attempt.in_flight and effect.partition == partition and entry in effect.entries
        for effect, attempt in draft.board.attempts.items()
        if isinstance(effect, ActivatePartition)
    )


def _unusable(draft: Draft, group: Group, reading: Reading) -> dict[int, tuple[Reason, str]]:
    """Which GPUs make the partition impossible, and why."""
    used = reading.seen.users & set(group.holder.gpus)
    if used:
        said = "a process on the machine holds the GPU open although it is nobody's"
        return dict.fromkeys(used, (Reason.IN_USE, said))
    partition = group.holder.partition
    if partition in reading.seen.supported:
        return {}
    tables = draft.board.orders.partitions
    alone = {modules[0]: number for number, modules in tables.items() if len(modules) == 1}
    broken = {m for m in group.holder.gpus if alone.get(m) not in reading.seen.supported}
    said = f"the fabric manager does not offer partition {partition}"
    return dict.fromkeys(broken or group.holder.gpus, (Reason.PARTITION_UNSUPPORTED, said))


def _used(reading: Reading, modules: Sequence[int]) -> bool:
    return not reading.seen.users.isdisjoint(modules)


def _release(draft: Draft, group: Group, releasing: Sequence[Lease]) -> None:
    """Wait until nothing of the pod, or of another, can touch the GPUs again; they leave together.

    A pod that was never let go to these GPUs cannot touch them: the device plugin refuses it.
    """
    for lease in releasing:
        if draft.expired(lease):
            draft.quarantine(lease, Reason.RELEASE_TIMED_OUT, _who_holds_on(draft, group, lease))
    if group.pod is None:
        return
    # One that was let go to other GPUs cannot be let go to these any more, nor come to them by itself.
    let_go = group.pod.lease == group.lease if group.pod.lease else group.admitted
    if let_go and group.pod.state not in LEAVING:
        # It can never get all of its GPUs any more, but the kubelet might still give it some.
        holder, why = group.holder, "its GPUs were taken back"
        draft.want(DeletePod(holder.pod_uid, holder.namespace, holder.pod, why))
    if let_go and group.pod.state not in OVER:
        return
    if any(x.disputed or (x.holder is not None and x.holder.allocated) for x in releasing):
        return
    if draft.board.away is not None and not group.admitted:
        # Nobody can be asked there, and no pod ever came to these GPUs: the pod need not wait for that.
        for lease in releasing:
            draft.move(lease, Phase.RESETTING, "its pod was never let go to it; its node is lost")
        return
    entries = [lease.entry for lease in releasing]
    reading = draft.reading(entries)
    if reading is None:
        return
    if _used(reading, [lease.module for lease in releasing]):
        draft.look_again(entries, reading)
        return
    for lease in releasing:
        draft.move(lease, Phase.RESETTING, "nothing uses the GPU any more")


def _who_holds_on(draft: Draft, group: Group, lease: Lease) -> str:
    pod = f"pod {group.holder.namespace}/{group.holder.pod}"
    if group.pod is None or group.pod.state not in OVER:
        return f"{pod} has not ended"
    if lease.disputed:
        return "the kubelet lists the GPU for another pod than its lease's"
    if lease.holder is not None and lease.holder.allocated:
        return f"the kubelet still lists the GPU for {pod}"
    reading = draft.board.reading
    if reading is not None and lease.module in reading.seen.users:
        return f"a process holds the GPU open after {pod} has ended"
    return f"its release could not be confirmed ({draft.last_failure(lease.entry)})"
