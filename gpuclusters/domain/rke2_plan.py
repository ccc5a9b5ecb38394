"""In which order the hosts of an RKE2 cluster join, and are upgraded: first server, other servers, agents.

RKE2's documentation of high availability: the first server until its API answers, then the other servers
one at a time (each is an etcd learner first, and etcd takes one at a time), then agents, not all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuclusters.domain.rke2 import Role

MOST_AGENTS_AT_ONCE = 50
"""RKE2's documentation advises against more joining at the same time."""
SERVER_COUNTS = (1, 3, 5)
"""An even number tolerates no more failures than one less; more than five slow every write of etcd."""


@dataclass(frozen=True, slots=True)
class Join:
    """One host's turn."""

    host: str
    role: Role
    first: bool
    """Whether it makes the cluster instead of joining one."""
    after: str | None
    """The host that must have joined before."""


def join_order(
    servers: Sequence[str], agents: Sequence[str], agents_at_once: int
) -> tuple[Join, ...]:
    """Every host with the one it waits for.

    Agents follow each other in a sliding window: each waits for the one that many places before it, so that
    never more than `agents_at_once` are on their way, and a slow one holds up one place instead of a batch.

    Raises:
        ValueError: no server, a name twice, or a window below 1.
    """
    names = [*servers, *agents]
    if not servers or len(set(names)) != len(names) or agents_at_once < 1:
        raise ValueError("a cluster needs a server, names that differ and a window of at least 1")
    order = [
        Join(name, Role.SERVER, first=n == 0, after=servers[n - 1] if n else None)
        for n, name in enumerate(servers)
    ]
    for n, name in enumerate(agents):
        after = servers[-1] if n < agents_at_once else agents[n - agents_at_once]
        order.append(Join(name, Role.AGENT, first=False, after=after))
    return tuple(order)


def rounds(order: Sequence[Join]) -> int:
    """How many hosts join one after another on the longest path: the least time, in joins."""
    depth: dict[str, int] = {}
    for join in order:
        depth[join.host] = 1 + (depth[join.after] if join.after is not None else 0)
    return max(depth.values(), default=0)
