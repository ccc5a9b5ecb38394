"""When a pod is let go to the host that has its GPUs, and what happens if it does not get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuclusters.domain.lease import Pod, PodState
from gpuclusters.domain.lease_effects import AdmitPod, DeletePod
from gpuclusters.domain.lease_group import Group
from gpuclusters.domain.lease_plan import Draft
from gpuclusters.domain.lease_resource import Phase


def admit(draft: Draft, present: Sequence[Group]) -> None:
    """Let one pod at a time go to the host, so that the kubelet cannot mistake its GPUs."""
    leased = [g for g in present if g.whole and len(g.within(Phase.LEASED)) == len(g.leases)]
    for group in leased:
        for lease in group.leases:
            holder = lease.holder
            if holder is not None and holder.allocated and lease.deadline is not None:
                draft.keep(
                    lease, replace(lease, deadline=None), "the kubelet has allocated the GPU"
                )
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
