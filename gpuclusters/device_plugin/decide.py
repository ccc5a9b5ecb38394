"""What the device plugin of one host answers the kubelet, given the leases of its GPUs. Pure.

A GPU is given away exactly once per lease: to the one group that was admitted and not yet allocated, whole.

It is announced as healthy from Free to Leased and unhealthy on its way back, and not withdrawn before its pod
is admitted: the kubelet, late to learn of health, would look for GPUs among those that the pod may not have.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.fabric.table import Partition
from gpuclusters.lease.model import GPULeaseStatus, Holder, Phase
from gpuclusters.lease.placement import BoardView, place

KUBELET_AGREES = "KubeletAgrees"
"""Condition of a lease: False while the kubelet lists the GPU for another pod than the lease's."""
HELD_BY_ANOTHER = "HeldByAnotherPod"
"""Its reason."""


def is_disputed(status: GPULeaseStatus | None) -> bool:
    """Whether the condition says that the kubelet lists the GPU for another pod."""
    conditions = () if status is None else status.conditions
    return any(c.type == KUBELET_AGREES and c.status == "False" for c in conditions)


OUTBOUND = frozenset({Phase.FREE, Phase.RESERVED, Phase.ACTIVATING, Phase.LEASED})
"""Phases on the way to a pod."""
CLEARABLE = frozenset({Phase.RELEASING, Phase.QUARANTINED})
"""Phases in which a pod's end is awaited: there the kubelet's word that it is over is taken."""


@dataclass(frozen=True, slots=True, order=True)
class PodName:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One GPU of the host: its CDI device, and its lease if there is one that can be believed."""

    device: str
    module: int
    status: GPULeaseStatus | None

    @property
    def holder(self) -> Holder | None:
        return self.status.holder if self.status is not None else None

    @property
    def pod(self) -> PodName | None:
        return None if self.holder is None else PodName(self.holder.namespace, self.holder.pod)

    @property
    def allocated(self) -> bool:
        """Whether the kubelet has given it to the holder."""
        return self.holder is not None and self.holder.allocated

    @property
    def waits(self) -> bool:
        """Whether it may be allocated now: leased, its pod let go, not yet allocated."""
        return (
            self.status is not None
            and self.status.phase is Phase.LEASED
            and self.holder is not None
            and self.holder.admitted
            and not self.holder.allocated
        )


@dataclass(frozen=True, slots=True)
class Board:
    """The host at a moment: for which pods the kubelet lists each device; `stale`, no longer believed."""

    host: str
    devices: tuple[DeviceView, ...]
    offered: tuple[Partition, ...]
    listed: Mapping[str, Collection[PodName]]
    stale: bool = False

    def conflict(self, device: DeviceView) -> PodName | None:
        """A pod that the kubelet lists for the device although it is not the lease's."""
        for pod in sorted(self.listed.get(device.device, ())):
            if pod != device.pod or (device.status is not None and device.status.phase in _NOBODYS):
                return pod
        return None


_NOBODYS = frozenset({Phase.RESERVED, Phase.ACTIVATING})
"""Phases with a holder whose pod cannot have the GPU yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why devices are not given; one sentence that the pod's status will show."""

    message: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The devices are the pod's: all GPUs of its group, in the order asked for."""

    pod: PodName
    pod_uid: str
    devices: tuple[DeviceView, ...]


def is_healthy(board: Board, device: DeviceView) -> bool:
    """Whether the kubelet may count on the device; an allocated one stays healthy while its lease lasts."""
    if device.status is None or board.conflict(device) is not None:
        return False
    if device.status.phase is Phase.LEASED and device.allocated:
        return True
    return device.status.phase in OUTBOUND and not board.stale


def preferred(
    board: Board, available: Collection[str], must: Collection[str], size: int
) -> tuple[str, ...]:
    """What the kubelet had best take: a waiting group, or the partition whose loss hurts least."""
    open_to_choice = frozenset(available)
    for group in _waiting(board):
        devices = tuple(member.device for member in group)
        if len(group) == size and open_to_choice.issuperset(devices) and set(must) <= set(devices):
            return devices
    free = frozenset(
        member.module
        for member in board.devices
        if member.device in open_to_choice
        and member.status is not None
        and member.status.phase is Phase.FREE
    )
    names = {member.module: member.device for member in board.devices}
    needed = {member.module for member in board.devices if member.device in must}
    offered = tuple(p for p in board.offered if needed <= set(p.modules))
    found = place(size, [BoardView(board.host, offered, free)])
    return () if found is None else tuple(names[m] for m in found.partition.modules)


def decide(board: Board, asked: Sequence[str]) -> Grant | Refusal:
    """Whether these devices may be given to a container now: only one whole group, once."""
    if board.stale:
        return Refusal(
            "the leases of this host's GPUs cannot be read; nothing is allocated until then"
        )
    known = {member.device: member for member in board.devices}
    unknown = sorted({device for device in asked if device not in known})
    if unknown:
        return Refusal(f"this host has no GPU {', '.join(unknown)}")
    if not asked or len(set(asked)) != len(asked):
        return Refusal("a container is given each GPU once, and at least one")
    members = [known[device] for device in asked]
    for member in members:
        refusal = _obstacle(board, member)
        if refusal is not None:
            return refusal
    holder = members[0].holder
    if holder is None:
        raise AssertionError("a device that waits has a holder")
    others = [m for m in members if m.holder is None or m.holder.pod_uid != holder.pod_uid]
    if others:
        pods = ", ".join(sorted({str(m.pod) for m in members}))
        return Refusal(f"the GPUs are leased to several pods ({pods}); each gets its own")
    if {member.module for member in members} != set(holder.gpus):
        return Refusal(
            f"pod {members[0].pod} is leased GPUs {_numbers(holder.gpus)} together, "
            f"not {_numbers([member.module for member in members])}"
        )
    return Grant(PodName(holder.namespace, holder.pod), holder.pod_uid, tuple(members))


class Action(StrEnum):
    """What is written onto a lease because of what the kubelet lists."""

    CLEAR = "clear"
    """The kubelet no longer has the GPU of a pod that ends: its lease may go on."""
    DISAGREE = "disagree"
    """It lists the GPU for a pod that does not have its lease."""
    AGREE = "agree"
    """It and the lease say the same again."""
    ADOPT = "adopt"
    """It has given the GPU to the lease's own pod, which the lease does not say."""


@dataclass(frozen=True, slots=True)
class Correction:
    """An action on a device's lease; `pod` is the one that the kubelet lists and should not."""

    action: Action
    device: DeviceView
    pod: PodName | None = None


def reconcile(board: Board, unseen: Collection[str]) -> Iterator[Correction]:
    """What follows from what the kubelet lists after the leases were read; `unseen` it may not list yet."""
    for device in board.devices:
        if device.status is None:
            continue
        pod, listed = board.conflict(device), board.listed.get(device.device)
        ends = device.status.phase in CLEARABLE
        if pod is not None:
            yield Correction(Action.DISAGREE, device, pod)
        elif is_disputed(device.status) and ends:
            # In any other phase the mark waits until the lease controller has acted on it.
            yield Correction(Action.AGREE, device)
        if listed and pod is None and device.waits:
            yield Correction(Action.ADOPT, device)
        if device.allocated and ends and not listed and device.device not in unseen:
            yield Correction(Action.CLEAR, device)


def _waiting(board: Board) -> list[list[DeviceView]]:
    """Groups that were admitted and not allocated, whole ones only."""
    groups: dict[str, list[DeviceView]] = {}
    for device in board.devices:
        if device.waits and device.holder is not None and board.conflict(device) is None:
            groups.setdefault(device.holder.pod_uid, []).append(device)
    return [
        members
        for members in groups.values()
        if members[0].holder is not None
        and {member.module for member in members} == set(members[0].holder.gpus)
    ]


def _obstacle(board: Board, member: DeviceView) -> Refusal | None:
    name = f"GPU {member.device} (module {member.module})"
    if member.status is None:
        return Refusal(f"{name} has no lease; the lease controller makes one for each GPU")
    other = board.conflict(member)
    if other is not None:
        return Refusal(f"{name} is still with pod {other}, which does not have its lease")
    if member.waits:
        return None
    if member.allocated and member.status.phase is Phase.LEASED:
        return Refusal(f"{name} was allocated to pod {member.pod} already")
    if member.status.phase is Phase.LEASED:
        return Refusal(
            f"{name} is leased to pod {member.pod}, which was not let go to this host yet"
        )
    return Refusal(f"{name} is {member.status.phase}, not leased to this pod")


def _numbers(modules: Collection[int]) -> str:
    return ", ".join(str(module) for module in sorted(modules))
