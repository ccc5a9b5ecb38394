"""The GPUs of one partition that one pod has, as a group.

A group is what several leases have in common; it has no object of its own. Its leases change one by
one, and whoever changes them may be killed in between: a group may be in several phases at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuclusters.domain.lease import LEAVING, Lease, Pod, PodState
from gpuclusters.domain.lease_board import Board
from gpuclusters.domain.lease_resource import HELD, Holder, Phase


@dataclass(frozen=True, slots=True)
class Group:
    """The leases that one pod holds of one partition."""

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
    """The groups of a board, in the order of their partitions."""
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
