"""What follows for the GPUs of a host whose node is lost, and when it is back.

That nobody answers on a lost node is no finding about a GPU, so it never ends in quarantine, which only
a person can end. Nothing is concluded from it either: no GPU becomes free, and nobody's GPU is given to
another. What is unknown there is asked when the node is back.

- Free GPUs stay Free and are not offered; once the node is back and its machine has answered, they are.
- A pod that was not let go yet does not need this host. What was set aside for it is given up after a
  while: it was free of tenants before, and the gate never opened, so no tenant has been on it. Whether
  the partition came up, and whether the machine booted meanwhile, is unknown: the whole cycle follows.
- GPUs of a pod that was let go are its own until its end is known: Leased stays Leased.
- On the way to Free time stands still, and begins anew when the node is back.
"""

from __future__ import annotations

from dataclasses import replace

from gpuclusters.domain.lease import PodState
from gpuclusters.domain.lease_group import Group
from gpuclusters.domain.lease_plan import STANDS_STILL, Draft
from gpuclusters.domain.lease_resource import WAITING_FOR_NODE, Phase

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


def give_up(draft: Draft, group: Group) -> None:
    """The pod waits for other GPUs."""
    why = "its node is lost before its pod was let go"
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
