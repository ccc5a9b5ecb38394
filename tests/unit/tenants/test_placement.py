"""Placement takes what hurts least; turns converge to equal shares, and large requests come to theirs."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.fabric.table import TABLES, Baseboard, Partition, PartitionTable, plan_layout
from gpuclusters.lease import placement as fair_share
from gpuclusters.lease.placement import (
    BoardView,
    Cost,
    Outage,
    PartitionState,
    Placement,
    Schedule,
    Waiting,
    Why,
    best_of,
    outage_of,
    outages,
    partition_states,
    place,
    schedule,
)
from tests.fixtures.tables import beside

CASES = beside(__file__, "placement.yaml")
some = settings(max_examples=40, deadline=None)
H100 = TABLES[Baseboard.HGX_H100]
ALL = frozenset(range(1, 9))
LAYOUTS = ([8], [4, 4], [4, 2, 2], [2, 2, 2, 2], [4, 2, 1, 1], [1] * 8)


def board(host: str, *, free: set[int] | frozenset[int] = ALL) -> BoardView:
    return BoardView(host, H100.partitions, frozenset(free))


@st.composite
def boards(draw: st.DrawFn) -> list[BoardView]:
    """Some hosts of any kind of board and layout, with any GPUs free."""
    views = []
    for number in range(draw(st.integers(0, 5))):
        table: PartitionTable = TABLES[draw(st.sampled_from(list(TABLES)))]
        layout = draw(st.sampled_from([None, *LAYOUTS]))
        offered = table.partitions if layout is None else plan_layout(table, layout)
        free = frozenset(draw(st.sets(st.integers(1, 8))))
        views.append(BoardView(f"hgx-{number:02}", offered, free))
    return views


def free_by_size(views: list[BoardView]) -> Counter[int]:
    return Counter(p.size for view in views for p in view.offered if view.has_free(p))


SIZES = st.sampled_from([1, 2, 4, 8])


@some
@given(SIZES, boards(), st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_listed_changes_nothing(
    size: int, views: list[BoardView], chance: random.Random
) -> None:
    shuffled = list(views)
    chance.shuffle(shuffled)
    assert place(size, shuffled) == place(size, views)


@given(SIZES, boards())
def test_a_place_is_found_when_some_board_has_one_and_no_other_leaves_more_of_the_largest_partitions(
    size: int, views: list[BoardView]
) -> None:
    choices = [
        Placement(view.host, partition)
        for view in views
        for partition in view.offered
        if partition.size == size and set(partition.modules) <= view.free
    ]

    def left(choice: Placement) -> list[int]:
        after = [v.without(choice.partition.modules) if v.host == choice.host else v for v in views]
        counts = free_by_size(after)
        return [counts.get(larger, 0) for larger in (8, 4, 2) if larger > size]

    found = place(size, views)
    assert (found is None) is (not choices)
    if found is not None:
        assert found in choices
        assert left(found) == max(left(choice) for choice in choices)


@pytest.mark.parametrize(("size", "free", "chosen"), CASES["places"])
def test_the_partition_on_the_host_that_loses_the_least_is_taken(
    size: int, free: dict[str, list[int]], chosen: list[Any] | None
) -> None:
    found = place(size, [board(host, free=set(modules)) for host, modules in free.items()])
    assert (found and [found.host, found.partition.id]) == chosen


def test_a_fixed_layout_offers_its_own_partitions_only() -> None:
    view = BoardView("hgx-01", plan_layout(H100, [4, 2, 2]), ALL)
    assert place(1, [view]) is None
    assert place(8, [view]) is None
    assert place(2, [view]) == Placement("hgx-01", Partition(5, (5, 7)))


@pytest.mark.parametrize(("free", "other"), [("free", "unschedulable"), ("unschedulable", "free")])
def test_every_partition_is_free_if_its_host_serves_or_busy_or_broken(
    free: str, other: str
) -> None:
    view = BoardView("hgx-01", H100.partitions, ALL - {1, 8}, lost=frozenset({8}))
    counts = partition_states([view], lambda _host: free == "free")
    assert {(size, state.value): count for (size, state), count in counts.items()} == {
        **{(8, free): 0, (8, "busy"): 0, (8, "broken"): 1},
        **{(4, free): 0, (4, "busy"): 1, (4, "broken"): 1},
        **{(2, free): 2, (2, "busy"): 1, (2, "broken"): 1},
        **{(1, free): 6, (1, "busy"): 1, (1, "broken"): 1},
        **{(size, other): 0 for size in (1, 2, 4, 8)},
    }


@some
@given(boards())
def test_states_add_up_to_what_is_on_offer(views: list[BoardView]) -> None:
    counts = partition_states(views)
    assert sum(counts.values()) == sum(len(view.offered) for view in views)
    free = {size: n for (size, state), n in counts.items() if state is PartitionState.FREE}
    assert +Counter(free) == free_by_size(views)


waiting_lists = st.lists(
    st.builds(
        Waiting,
        uid=st.uuids().map(str),
        tenant=st.sampled_from("abcd"),
        size=st.sampled_from([1, 2, 4, 8]),
        since=st.integers(0, 1000).map(float),
    ),
    max_size=30,
    unique_by=lambda w: w.uid,
)
holdings = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 40))
free_sets = st.lists(st.sets(st.integers(1, 8)), max_size=4)


def ask(uid: str, tenant: str, size: int = 1, since: float = 0.0) -> Waiting:
    return Waiting(uid, tenant, size, since)


def uids(requests: list[Waiting]) -> list[str]:
    return [request.uid for request in requests]


def order(waiting: list[Waiting], holding: dict[str, int]) -> list[Waiting]:
    """The turns where there is room for everybody."""
    boards = [board(f"hgx-{number:02}") for number in range(40)]
    return [grant.request for grant in schedule(waiting, holding, boards, now=0).grants]


def granted(found: Schedule) -> dict[str, tuple[str, int]]:
    return {g.request.uid: (g.placement.host, g.placement.partition.id) for g in found.grants}


def kept(found: Schedule) -> tuple[str, str, int] | None:
    if found.reserved is None:
        return None
    placement = found.reserved.placement
    return found.reserved.request.uid, placement.host, placement.partition.id


@some
@given(waiting_lists, holdings, st.randoms(use_true_random=False))
def test_each_request_has_exactly_one_turn_however_the_queue_is_listed(
    waiting: list[Waiting], holding: dict[str, int], chance: random.Random
) -> None:
    turns = order(waiting, holding)
    assert sorted(uids(turns)) == sorted(uids(waiting))
    chance.shuffle(waiting)
    assert order(waiting, holding) == turns


@some
@given(waiting_lists, holdings)
def test_next_is_the_oldest_request_of_those_whose_tenants_hold_the_fewest_gpus(
    waiting: list[Waiting], holding: dict[str, int]
) -> None:
    held = Counter(holding)
    turns = order(waiting, holding)
    for number, request in enumerate(turns):
        first = min((held[later.tenant], later.since) for later in turns[number:])
        assert (held[request.tenant], request.since) == first
        held[request.tenant] += request.size


@some
@given(waiting_lists, holdings, free_sets, st.floats(0, 2000))
def test_grants_never_overlap_and_nothing_is_refused_that_fits_beside_them_and_what_is_kept(
    waiting: list[Waiting], holding: dict[str, int], free: list[set[int]], now: float
) -> None:
    boards = {f"hgx-{n:02}": board(f"hgx-{n:02}", free=modules) for n, modules in enumerate(free)}
    found = schedule(waiting, holding, list(boards.values()), now=now)
    for grant in found.grants:
        assert grant.request.size == grant.placement.partition.size
        assert boards[grant.placement.host].has_free(grant.placement.partition)
        boards[grant.placement.host] = boards[grant.placement.host].without(
            grant.placement.partition.modules
        )
    served = [grant.request.uid for grant in found.grants]
    assert len(served) == len(set(served))
    if found.reserved is not None:
        assert found.reserved.request.uid not in served
        host, modules = found.reserved.placement.host, found.reserved.placement.partition.modules
        taken = {
            m
            for g in found.grants
            if g.placement.host == host
            for m in g.placement.partition.modules
        }
        assert taken.isdisjoint(modules)
        boards[host] = boards[host].without(modules)
    for request in waiting:
        if request.uid not in served:
            assert place(request.size, list(boards.values())) is None


@some
@given(waiting_lists, holdings, free_sets)
def test_nothing_is_kept_before_patience_is_at_its_end(
    waiting: list[Waiting], holding: dict[str, int], free: list[set[int]]
) -> None:
    boards = [board(f"hgx-{n:02}", free=modules) for n, modules in enumerate(free)]
    now = max((request.since for request in waiting), default=0.0)
    found = schedule(waiting, holding, boards, now=now, patience_seconds=1001)
    assert found.reserved is None
    turns = uids(order(waiting, holding))
    if len(granted(found)) == len(waiting):
        assert list(granted(found)) == turns


@pytest.mark.parametrize("case", CASES["turns"].values(), ids=CASES["turns"])
def test_whose_turn_it_is_and_what_is_kept_for_whom(case: dict[str, Any]) -> None:
    boards = [
        BoardView(
            host, H100.partitions, frozenset(free), frozenset(case.get("lost", {}).get(host, ()))
        )
        for host, free in case["free"].items()
    ]
    waiting = [ask(*one) for one in case["waiting"]]
    found = schedule(waiting, case.get("holding", {}), boards, now=case["now"])
    assert granted(found) == {uid: tuple(at) for uid, at in case.get("granted", {}).items()}
    assert kept(found) == (tuple(case["kept"]) if "kept" in case else None)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([2, 4, 8]))
def test_a_large_request_starts_however_many_small_ones_keep_coming(seed: int, size: int) -> None:
    """Small requests arrive faster than they can be served; all containers end at some time."""
    chance = random.Random(seed)
    boards = [f"hgx-{n:02}" for n in range(3)]
    running: list[tuple[float, str, str, tuple[int, ...]]] = []
    queue = [ask("big", "large", size, since=1.0)]
    for step in range(400):
        now = step * 60.0
        running = [entry for entry in running if entry[0] > now]
        queue += [ask(f"s{step}-{n}", f"t{n % 8}", 1, since=now) for n in range(30)]
        busy = {(host, module) for _, _, host, modules in running for module in modules}
        views = [board(h, free={m for m in ALL if (h, m) not in busy}) for h in boards]
        holding = Counter[str]()
        for _, tenant, _, modules in running:
            holding[tenant] += len(modules)
        holding["large"] = 20 if step < 70 else 0  # until then it holds more than its share
        found = schedule(queue, holding, views, now=now)
        for grant in found.grants:
            if grant.request.uid == "big":
                assert step >= 70
                return
            place_ = grant.placement
            end = now + chance.uniform(60, 3600)
            running.append((end, grant.request.tenant, place_.host, place_.partition.modules))
        served = {grant.request.uid for grant in found.grants}
        queue = [request for request in queue if request.uid not in served][:200]
    raise AssertionError("the large request never started")


def test_a_board_is_looked_at_again_only_after_something_was_placed_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def counted(size: int, view: BoardView) -> tuple[Cost, Placement] | None:
        looks.append(view.host)
        return best_of(size, view)

    monkeypatch.setattr(fair_share, "best_of", counted)
    boards = [board(f"hgx-{n:02}") for n in range(20)]
    found = schedule([ask(f"w{n:03}", "a") for n in range(160)], {}, boards, now=0)
    assert len(found.grants) == 160
    assert len(looks) <= 20 + 160


def node(ready: str | None = "True", since: str | None = None, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    if since:
        conditions[-1]["lastTransitionTime"] = since
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}


@pytest.mark.parametrize(("status", "why", "message"), CASES["outages"])
def test_a_node_that_does_not_serve_says_why(
    status: dict[str, Any] | str | None, why: str | None, message: str
) -> None:
    body = {"metadata": {"name": "n"}} if status == "bare" else status and node(**status)
    found = outage_of("n", body)
    assert found == (why and Outage(Why[why], message))
    # Only of a node that is there something is known.
    assert (found is not None and found.lost) is (why not in (None, "CORDONED"))


def test_nodes_that_nobody_asks_for_do_not_matter_and_those_that_are_missing_do() -> None:
    found = outages(["a", "b", "c"], {"a": node(), "b": node("Unknown"), "stranger": node("False")})
    assert {name: outage.why for name, outage in found.items()} == {
        "b": Why.NOT_READY,
        "c": Why.GONE,
    }
