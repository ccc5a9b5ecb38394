"""From Reserved to Releasing: what follows for the GPUs that a pod has.

Each rule makes sense of a group whose leases are in different phases, since whoever changes them may be
killed between any two.

On a host whose node is lost nothing is concluded: silence is no finding about a GPU, so it never ends in
quarantine, no GPU becomes free, and none is given to another pod. What is unknown is asked when the node is
back.

- Free GPUs stay Free and are not offered until the node is back and its machine has answered.
- A pod that was not let go yet does not need this host: after a while it gives up what was set aside for it.
  Whether the partition came up, or the machine booted meanwhile, is unknown: the whole cycle follows.
- GPUs of a pod that was let go are its own until its end is known: Leased stays Leased.
- On the way to Free time stands still, and begins anew when the node is back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuclusters.lease.board import (
    LEAVING,
    OVER,
    ActivatePartition,
    AdmitPod,
    Board,
    DeletePod,
    FindPod,
    Lease,
    Pod,
    PodState,
    Reading,
    Refused,
    Succeeded,
    holds,
)
from gpuclusters.lease.model import HELD, WAITING_FOR_NODE, Holder, Phase, QuarantineReason
from gpuclusters.lease.plan import STANDS_STILL, Change, Draft


@dataclass(frozen=True, slots=True)
class Group:
    """The leases that one pod holds of one partition; they change one by one and may be in several phases."""

    holder: Holder
    leases: tuple[Lease, ...]
    pod: Pod | None
    lease: str
    """What the pod's annotation says when it was let go to these GPUs."""

    def within(self, *phases: Phase) -> tuple[Lease, ...]:
        """Those in one of the phases."""
        return tuple(lease for lease in self.leases if lease.phase in phases)

    @property
    def whole(self) -> bool:
        """Whether every GPU of the partition is still on its way to the pod, or the pod's."""
        coming = self.within(Phase.RESERVED, Phase.ACTIVATING, Phase.LEASED)
        return {lease.module for lease in coming} == set(self.holder.gpus)

    @property
    def wanted(self) -> bool:
        """Whether the pod can still use these GPUs."""
        if self.pod is None or self.pod.state in LEAVING:
            return False
        return self.pod.state is PodState.WAITING or self.pod.lease == self.lease

    @property
    def disputed(self) -> bool:
        """Whether the kubelet has given one of its GPUs to another pod."""
        return any(lease.disputed for lease in self.leases)

    @property
    def admitted(self) -> bool:
        """Whether any of its leases says that the pod was let go."""
        return any(lease.holder is not None and lease.holder.admitted for lease in self.leases)

    @property
    def allocated(self) -> bool:
        """Whether the kubelet has given all of its GPUs to the pod."""
        return all(lease.holder is not None and lease.holder.allocated for lease in self.leases)


def groups(board: Board) -> Iterator[Group]:
    found: dict[tuple[int, str], list[Lease]] = {}
    for _, lease in sorted(board.leases.items()):
        if lease.holder is not None and lease.phase in HELD:
            key = (lease.holder.partition, lease.holder.pod_uid)
            found.setdefault(key, []).append(lease)
    for (partition, uid), leases in sorted(found.items()):
        holder = leases[0].holder
        assert holder is not None  # noqa: S101  (HELD)
        name = f"{board.orders.host}/{partition}"
        yield Group(holder, tuple(leases), board.pods.get(uid), name)


HELD_OPEN = "a process on the machine holds the GPU open although it is nobody's"
PATIENCE_SECONDS = 30.0
"""How long what was begun for a waiting pod goes on: a node that is NotReady for seconds costs nothing."""


def is_given_up(draft: Draft, group: Group) -> bool:
    """Whether the pod is better off elsewhere. Not once it was let go: then it has no elsewhere."""
    away = draft.board.away
    if away is None or group.admitted or group.pod is None:
        return False
    if group.pod.state is not PodState.WAITING:
        return False
    if len(group.within(Phase.RESERVED)) == len(group.leases):
        return True
    over = away.since + PATIENCE_SECONDS
    draft.wake_at(over)
    late = any(draft.expired(lease) for lease in group.within(Phase.ACTIVATING))
    return late or over <= draft.now


def take_back(draft: Draft, group: Group, why: str) -> None:
    """The pod does not get, or keep, these GPUs."""
    for lease in group.within(Phase.RESERVED):
        draft.move(lease, Phase.FREE, f"{why}; nothing was done to the GPU yet")
    for lease in group.within(Phase.ACTIVATING, Phase.LEASED):
        draft.move(lease, Phase.RELEASING, why)


def decide_absence(draft: Draft) -> None:
    """Say who waits for the node, and let time go on when it is back."""
    away = draft.board.away
    for _, lease in sorted(draft.board.leases.items()):
        if lease.phase not in STANDS_STILL:
            continue
        if away is not None:
            waits = replace(lease, deadline=None, reason=WAITING_FOR_NODE, message=away.message)
            if waits != lease:
                draft.keep(lease, waits, away.message)
        elif lease.reason == WAITING_FOR_NODE:
            limit = draft.board.orders.limits.of(lease.phase)
            deadline = None if limit is None else draft.now + limit
            goes_on = replace(lease, deadline=deadline, reason="", message="")
            draft.keep(lease, goes_on, "its node is back")
    if away is None and not draft.board.heard:
        free = [x.entry for x in draft.board.leases.values() if x.phase is Phase.FREE]
        draft.reading(free)


def admit(draft: Draft, present: Sequence[Group]) -> None:
    """Let one pod at a time go to the host, so that the kubelet cannot mistake its GPUs."""
    leased = [g for g in present if g.whole and len(g.within(Phase.LEASED)) == len(g.leases)]
    for group in leased:
        for lease in group.leases:
            if lease.holder and lease.holder.allocated and lease.deadline is not None:
                given = replace(lease, deadline=None)
                draft.keep(lease, given, "the kubelet has allocated the GPU")
    going = [group for group in leased if group.admitted and not _arrived(group)]
    ready = going or [group for group in leased if group.wanted and not group.admitted]
    for group in ready[:1]:
        if group.pod is None or not group.wanted:
            continue
        if draft.board.away is not None and not group.admitted:
            continue  # its gate would open to where nobody is
        _let_go(draft, group, group.pod)


def _arrived(group: Group) -> bool:
    """Whether the kubelet has the pod's GPUs; not while the gate is closed, whatever anybody marked."""
    waits = group.pod is not None and group.pod.state is PodState.WAITING
    return group.allocated and not waits


def _let_go(draft: Draft, group: Group, pod: Pod) -> None:
    holder = group.holder
    missing = [x for x in group.leases if x.holder is not None and not x.holder.admitted]
    for lease in missing:
        admitted = replace(
            lease,
            holder=lease.holder and lease.holder.model_copy(update={"admitted": True}),
            deadline=draft.now + draft.board.orders.limits.admission,
        )
        draft.keep(lease, admitted, "all GPUs of the partition are leased")
    if missing:
        return
    if any(draft.expired(lease) for lease in group.leases):
        why = "the kubelet did not allocate its GPUs in time"
        draft.want(DeletePod(holder.pod_uid, holder.namespace, holder.pod, why))
    elif pod.state is PodState.WAITING:
        draft.want(AdmitPod(holder.pod_uid, holder.namespace, holder.pod, group.lease))


def reserve(board: Board, holder: Holder, now: float) -> tuple[Change, ...]:
    """What reserves a partition for a waiting pod without GPUs here; nothing if a GPU of it is not free."""
    pod = board.pods.get(holder.pod_uid)
    if pod is None or pod.state is not PodState.WAITING:
        return ()
    if any(holds(lease, holder.pod_uid) for lease in board.leases.values()):
        return ()
    draft = Draft(board, now)
    for module in holder.gpus:
        lease = board.leases.get(module)
        if lease is None or lease.phase is not Phase.FREE or lease.disputed:
            return ()
        why = f"for pod {holder.namespace}/{holder.pod}"
        draft.move(replace(lease, holder=holder), Phase.RESERVED, why)
    return draft.plan().changes


def decide_groups(draft: Draft) -> None:
    """What follows for all GPUs that somebody holds."""
    present = list(groups(draft.board))
    for group in present:
        if group.pod is None:
            draft.want(FindPod(group.holder.pod_uid, group.holder.namespace, group.holder.pod))
        elif not group.wanted or not group.whole or group.disputed:
            _dissolve(draft, group)
        elif is_given_up(draft, group):
            take_back(draft, group, "its node is lost before its pod was let go")
        elif reserved := group.within(Phase.RESERVED):
            for lease in reserved:
                draft.move(lease, Phase.ACTIVATING, "all GPUs of the partition are reserved")
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
    take_back(draft, group, why)


def _give_up_late(draft: Draft, lease: Lease) -> None:
    if not draft.expired(lease):
        return
    if lease.phase is Phase.RESERVED:
        why = "the reservation lasted too long; nothing was done to the GPU"
        draft.move(lease, Phase.FREE, why)
    elif draft.board.away is None:
        why = "its partition could not be activated in time"
        draft.quarantine_late(lease, QuarantineReason.ACTIVATION_TIMED_OUT, why)


def _activate(draft: Draft, group: Group, activating: Sequence[Lease]) -> None:
    """Down with whatever is active there, up with the partition: links are trained after the reset."""
    partition = group.holder.partition
    entries = frozenset(lease.entry for lease in activating)
    tried = [
        (effect.entries & entries, attempt)
        for effect, attempt in draft.board.attempts.items()
        if isinstance(effect, ActivatePartition)
        and effect.partition == partition
        and effect.entries & entries
    ]
    # Those for which the partition was activated during their stay.
    shown = {e for of, attempt in tried if isinstance(attempt.outcome, Succeeded) for e in of}
    if shown:
        for lease in activating:
            if lease.entry in shown:
                draft.move(lease, Phase.LEASED, f"partition {partition} is active")
        return
    refused = (a.outcome for _, a in tried if isinstance(a.outcome, Refused))
    if refusal := next(refused, None):
        for lease in group.within(Phase.ACTIVATING):
            draft.quarantine(
                lease, refusal.reason or QuarantineReason.NVLINK_ERROR, refusal.message
            )
        return
    if any(attempt.in_flight for _, attempt in tried):
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
    if draft.cleared(entries, reading, group.holder.gpus, group.holder.pod_uid):
        draft.want(ActivatePartition(partition, entries))


def _unusable(
    draft: Draft, group: Group, reading: Reading
) -> dict[int, tuple[QuarantineReason, str]]:
    """Which GPUs make the partition impossible, and why."""
    used = reading.seen.users & set(group.holder.gpus)
    if used:
        return dict.fromkeys(used, (QuarantineReason.IN_USE, HELD_OPEN))
    partition = group.holder.partition
    if partition in reading.seen.supported:
        return {}
    tables = draft.board.orders.partitions
    alone = {modules[0]: number for number, modules in tables.items() if len(modules) == 1}
    broken = {m for m in group.holder.gpus if alone.get(m) not in reading.seen.supported}
    said = f"the fabric manager does not offer partition {partition}"
    return dict.fromkeys(
        broken or group.holder.gpus, (QuarantineReason.PARTITION_UNSUPPORTED, said)
    )


def _release(draft: Draft, group: Group, releasing: Sequence[Lease]) -> None:
    """Wait until nothing of the pod, or of another, can touch the GPUs again; they leave together.

    A pod that was never let go to these GPUs cannot touch them: the device plugin refuses it.
    """
    for lease in releasing:
        if draft.expired(lease):
            draft.quarantine(
                lease, QuarantineReason.RELEASE_TIMED_OUT, _who_holds_on(draft, group, lease)
            )
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
    if draft.unused(entries, [lease.module for lease in releasing]) is not None:
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
