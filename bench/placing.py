"""Generated loads, and what becomes of them under a rule of placement: the tools of the bench."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.lease.placement import BoardView, Placement, place

TABLE = TABLES[Baseboard.HGX_H100]
GPUS = 8
SIZES = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
"""Share of requests by number of GPUs."""
MEAN_HOURS = 1.0

Rule = Callable[[int, Sequence[BoardView]], Placement | None]


@dataclass(frozen=True, slots=True)
class Request:
    """It comes, and if it is let in it stays until `end` (hours)."""

    start: float
    end: float
    size: int


def load(seed: int, count: int, boards: int, offered: float) -> list[Request]:
    """Requests that together ask for `offered` of all GPUs, on average over time."""
    chance = random.Random(seed)
    mean_size = sum(size * share for size, share in SIZES.items())
    rate = offered * boards * GPUS / (mean_size * MEAN_HOURS)
    now, requests = 0.0, []
    for _ in range(count):
        now += chance.expovariate(rate)
        (size,) = chance.choices(list(SIZES), list(SIZES.values()))
        requests.append(Request(now, now + chance.expovariate(1 / MEAN_HOURS), size))
    return requests


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a load. Each share is between 0 and 1."""

    refused: float
    """Of the requests."""
    scattered: float
    """Of the free GPUs those that are in no free partition of four, averaged over time."""


def run(rule: Rule, requests: Sequence[Request], boards: int) -> Outcome:
    """Let the requests in one after the other, as they come; who finds no place is refused."""
    views = {
        f"hgx-{n:02}": BoardView(f"hgx-{n:02}", TABLE.partitions, frozenset(range(1, GPUS + 1)))
        for n in range(boards)
    }
    running: list[tuple[float, int, str, tuple[int, ...]]] = []
    refused, scattered, before = 0, 0.0, 0.0
    for number, request in enumerate(requests):
        while running and running[0][0] <= request.start:
            end, _, host, modules = heapq.heappop(running)
            scattered += _scattered(list(views.values())) * (end - before)
            before = end
            view = views[host]
            views[host] = replace(view, free=view.free | set(modules))
        scattered += _scattered(list(views.values())) * (request.start - before)
        before = request.start
        found = rule(request.size, list(views.values()))
        if found is None:
            refused += 1
            continue
        views[found.host] = views[found.host].without(found.partition.modules)
        heapq.heappush(running, (request.end, number, found.host, found.partition.modules))
    return Outcome(refused / len(requests), scattered / before)


def _scattered(views: Sequence[BoardView]) -> float:
    free = sum(len(view.free) for view in views)
    whole = sum(4 for v in views for p in v.offered if p.size == 4 and v.has_free(p))
    return (free - whole) / free if free else 0.0


def ours(size: int, boards: Sequence[BoardView]) -> Placement | None:
    """The rule of the product."""
    return place(size, boards)


def first_fit(size: int, boards: Sequence[BoardView]) -> Placement | None:
    """The first host by name, the lowest number."""
    return min(fitting(size, boards), key=lambda p: (p.host, p.partition.id), default=None)


def random_fit(seed: int) -> Rule:
    """Any that fits."""
    chance = random.Random(seed)

    def rule(size: int, boards: Sequence[BoardView]) -> Placement | None:
        found = fitting(size, boards)
        return chance.choice(found) if found else None

    return rule


def fitting(size: int, boards: Sequence[BoardView]) -> list[Placement]:
    """Every free partition of this size."""
    return [
        Placement(board.host, partition)
        for board in boards
        for partition in board.offered
        if partition.size == size and board.has_free(partition)
    ]


# The optimum. A partition table is a binary tree (8, two 4, four 2, eight 1), and where in it a
# request sits does not matter beyond which of its neighbours are busy until when. So a state is the
# tree with the end of each GPU's use, halves sorted, and states that are equal are one.
Tree = tuple["Tree", "Tree"] | float
FREE = 0.0


def fewest_refused(requests: Sequence[Request], boards: int) -> float:
    """The smallest share of refusals that any rule can reach that lets in whatever fits.

    Exact: knows every arrival and departure beforehand, and follows all choices at once, except
    those that have refused as many as our rule does in the end.
    """
    known = round(run(ours, requests, boards).refused * len(requests))
    states: dict[tuple[Tree, ...], int] = {(_whole(FREE, GPUS),) * boards: 0}
    for request in requests:
        after: dict[tuple[Tree, ...], int] = {}
        for state, refused in states.items():
            now = tuple(sorted((_expire(tree, request.start) for tree in state), key=_key))
            choices = set(_choices(now, request))
            for choice in choices or {now}:
                total = refused + (not choices)
                if total < min(known, after.get(choice, known)):
                    after[choice] = total
        states = after
    return min(states.values(), default=known) / len(requests)


def _whole(end: float, size: int) -> Tree:
    return end if size == 1 else (_whole(end, size // 2), _whole(end, size // 2))


@cache
def _key(tree: Tree) -> tuple[float, ...]:
    return (tree,) if isinstance(tree, float) else _key(tree[0]) + _key(tree[1])


def _pair(left: Tree, right: Tree) -> Tree:
    return (left, right) if _key(left) <= _key(right) else (right, left)


def _expire(tree: Tree, now: float) -> Tree:
    if isinstance(tree, float):
        return tree if tree > now else FREE
    return _pair(_expire(tree[0], now), _expire(tree[1], now))


def _choices(state: tuple[Tree, ...], request: Request) -> list[tuple[Tree, ...]]:
    found = []
    for number, tree in enumerate(state):
        for placed in set(_placed(tree, GPUS, request)):
            others = (*state[:number], *state[number + 1 :], placed)
            found.append(tuple(sorted(others, key=_key)))
    return found


def _placed(tree: Tree, size: int, request: Request) -> list[Tree]:
    if size == request.size:
        return [_whole(request.end, size)] if not any(_key(tree)) else []
    assert not isinstance(tree, float)
    left, right = tree
    found = [_pair(placed, right) for placed in _placed(left, size // 2, request)]
    return found + [_pair(left, placed) for placed in _placed(right, size // 2, request)]
