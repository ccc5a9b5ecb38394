"""Placement takes what hurts least, finds a place whenever there is one, and always the same one."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.fabric.table import TABLES, Baseboard, Partition, PartitionTable, plan_layout
from gpuclusters.lease.placement import (
    BoardView,
    PartitionState,
    Placement,
    partition_states,
    place,
)

H100 = TABLES[Baseboard.HGX_H100]
ALL = frozenset(range(1, 9))
LAYOUTS = ([8], [4, 4], [4, 2, 2], [2, 2, 2, 2], [4, 2, 1, 1], [1] * 8)


def board(host: str = "hgx-01", *, free: set[int] | frozenset[int] = ALL) -> BoardView:
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


@given(SIZES, boards())
def test_a_place_is_found_exactly_when_some_board_has_one(
    size: int, views: list[BoardView]
) -> None:
    fitting = {
        (view.host, partition)
        for view in views
        for partition in view.offered
        if partition.size == size and set(partition.modules) <= view.free
    }
    found = place(size, views)
    if found is None:
        assert not fitting
    else:
        assert (found.host, found.partition) in fitting


@given(SIZES, boards(), st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_listed_changes_nothing(
    size: int, views: list[BoardView], chance: random.Random
) -> None:
    shuffled = list(views)
    chance.shuffle(shuffled)
    assert place(size, shuffled) == place(size, views)


@given(SIZES, boards())
def test_no_other_choice_leaves_more_of_the_largest_partitions(
    size: int, views: list[BoardView]
) -> None:
    found = place(size, views)
    if found is None:
        return

    def left(choice: Placement) -> list[int]:
        after = [v.without(choice.partition.modules) if v.host == choice.host else v for v in views]
        counts = free_by_size(after)
        return [counts.get(larger, 0) for larger in (8, 4, 2) if larger > size]

    choices = [
        Placement(view.host, partition)
        for view in views
        for partition in view.offered
        if partition.size == size and view.has_free(partition)
    ]
    assert left(found) == max(left(choice) for choice in choices)


@pytest.mark.parametrize(
    ("size", "free", "chosen"),
    [
        (1, ALL, 7),
        (2, ALL, 3),
        (8, ALL, 0),
        # On H100 the pairs are 1,3 and 2,4: with 1 in use, 3 is the one whose pair is broken anyway.
        (1, ALL - {1}, 9),
        # A pair out of the half that is broken already, not out of the whole one.
        (2, ALL - {5}, 6),
        # Two GPUs are free, but they are no partition: 1 and 2 are not connected as a pair.
        (2, {1, 2}, None),
        (4, {1, 2, 5, 6}, None),
        (8, ALL - {8}, None),
        (3, ALL, None),
        (0, ALL, None),
    ],
)
def test_on_one_board_the_partition_that_breaks_the_least_is_taken(
    size: int, free: set[int], chosen: int | None
) -> None:
    found = place(size, [board(free=free)])
    assert (found.partition.id if found else None) == chosen


@pytest.mark.parametrize(
    ("size", "boards", "chosen"),
    [
        # A board that is broken already before a whole one, the fullest host, and equal ones by name.
        (1, {"hgx-01": ALL, "hgx-02": ALL - {1}}, ("hgx-02", 9)),
        (1, {"hgx-01": {1, 2, 5}, "hgx-02": {1}}, ("hgx-02", 7)),
        (8, {"hgx-02": ALL, "hgx-01": ALL}, ("hgx-01", 0)),
    ],
)
def test_among_hosts_the_one_that_loses_the_least_is_taken(
    size: int, boards: dict[str, set[int]], chosen: tuple[str, int]
) -> None:
    host, number = chosen
    found = place(size, [board(name, free=free) for name, free in boards.items()])
    assert found == Placement(host, H100.partition(number))


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


@given(boards())
def test_states_add_up_to_what_is_on_offer(views: list[BoardView]) -> None:
    counts = partition_states(views)
    assert sum(counts.values()) == sum(len(view.offered) for view in views)
    free = {size: n for (size, state), n in counts.items() if state is PartitionState.FREE}
    assert +Counter(free) == free_by_size(views)
