"""Partitions of a board: planning, and reconciling through a fabric manager that keeps state."""

import contextlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.board import DEADLINE_SECONDS, NO_CONNECTION_SECONDS
from gpuclusters.fabric.decide import active_ids
from tests.unit.machines.fabric_board import GPUS, H100, PAIRS, SINGLES, Board, inputs


def is_disjoint(ids: Iterable[int]) -> bool:
    """Whether no GPU is in two of these partitions."""
    modules = [module for i in ids for module in H100.partition(i).modules]
    return len(modules) == len(set(modules))


def disjoint_sets() -> st.SearchStrategy[list[int]]:
    """Any set of partitions that can be active together."""

    def build(order: list[int], size: int) -> list[int]:
        chosen: list[int] = []
        for partition_id in order:
            if is_disjoint([*chosen, partition_id]):
                chosen.append(partition_id)
        return sorted(chosen[:size])

    ids = [p.id for p in H100.partitions]
    return st.builds(build, st.permutations(ids), st.integers(0, 8))


@settings(deadline=None, max_examples=60)
@given(disjoint_sets(), disjoint_sets(), st.sets(st.integers(1, 8)))
def test_any_set_is_reached_from_any_other_and_no_vm_loses_its_links(
    before: list[int], wanted: list[int], used: set[int]
) -> None:
    board = Board(active=set(before), used=used)
    leaving = {m for i in set(before) - set(wanted) for m in board.table[i]}
    if leaving & used:
        with pytest.raises(Refused, match="in use"):
            board.declared(inputs(wanted)).ensure(applied=before)
        assert board.active == set(before)  # nothing at all was changed
        return
    made = board.declared(inputs(wanted)).ensure(applied=before)
    assert board.active == set(active_ids(made.live)) == set(wanted)
    assert board.trips <= 2  # the list, and one change of any size
    for step in board.history:  # pairwise disjoint after every step
        assert is_disjoint(step)
    kept = set(before) & set(wanted)
    assert all(kept <= step for step in board.history)


@settings(deadline=None, max_examples=60)
@given(disjoint_sets(), disjoint_sets(), st.integers(0, 20))
def test_interrupted_anywhere_a_second_run_converges(
    before: list[int], wanted: list[int], calls_until_the_end: int
) -> None:
    board = Board(active=set(before), answers=[None] * calls_until_the_end + [-2])
    with contextlib.suppress(FabricError):
        board.declared(inputs(wanted)).ensure(applied=before)
    board.answers = []
    board.declared(inputs(wanted)).ensure(applied=before)
    assert board.active == set(wanted)


def test_deactivations_come_first() -> None:
    board = Board(active=set(SINGLES))
    board.declared(inputs([3, 8, 10, 11, 12, 13, 14])).ensure(applied=SINGLES)
    changes = [call for call in board.calls if call != "list"]
    assert changes == ["deactivate 7", "deactivate 9", "activate 3"]


@pytest.mark.parametrize("used", [set(), {1, 4}], ids=["idle", "VMs run"])
def test_a_restarted_fabric_manager_gets_its_list_back_before_anything_else(
    used: set[int],
) -> None:
    board = Board(active=set(SINGLES), used=used)
    board.restart()
    board.declared(inputs(SINGLES)).ensure(applied=SINGLES)
    assert board.active == set(SINGLES)
    assert board.calls[:2] == ["list", f"set {SINGLES}"]
    assert not any(c.startswith(("activate", "deactivate")) for c in board.calls)
    assert "had forgotten" in board.notes[0]


def test_a_fabric_manager_that_forgot_but_answers_gets_its_list_back_too() -> None:
    board = Board(used={1})
    board.declared(inputs(SINGLES)).ensure(applied=SINGLES)
    assert f"set {SINGLES}" in board.calls


def test_where_all_was_deactivated_by_hand_a_refused_list_does_no_harm() -> None:
    board = Board(answers=[None, -2])  # list, then what a running fabric manager may say
    board.declared(inputs(PAIRS)).ensure(applied=SINGLES)
    assert board.active == set(PAIRS)
    used = Board(answers=[None, -2], used={1})
    with pytest.raises(FabricError, match="answered -2"):
        used.declared(inputs(PAIRS)).ensure(applied=SINGLES)


def test_a_first_run_on_a_waiting_fabric_manager_sends_no_list_while_a_vm_runs() -> None:
    busy = Board(waits_for_list=True, used={3})
    with pytest.raises(FabricError, match="-8, not configured"):
        busy.declared(inputs(PAIRS)).ensure(applied=[])
    assert not any(c.startswith("set") for c in busy.calls)


def test_a_client_that_drops_the_list_is_noticed_when_a_vm_runs() -> None:
    board = Board(waits_for_list=True, passes_list_on=False, used={3})
    with pytest.raises(Refused, match=r"although it was told.*GPU 3.*install an fmpm"):
        board.declared(inputs(SINGLES)).ensure(applied=SINGLES)
    idle = Board(waits_for_list=True, passes_list_on=False)
    idle.declared(inputs(SINGLES)).ensure(applied=SINGLES)
    assert idle.active == set(SINGLES)


@pytest.mark.parametrize("code", [-5, -8, -9, -14, -15])
def test_what_passes_is_waited_for(code: int) -> None:
    board = Board(answers=[code, code, code], used={8})
    board.declared(inputs(PAIRS)).ensure(applied=[])
    assert board.active == set(PAIRS)
    assert board.time > 0


@pytest.mark.parametrize(
    ("code", "seconds"), [(-15, DEADLINE_SECONDS), (-9, NO_CONNECTION_SECONDS)]
)
def test_waiting_ends(code: int, seconds: float) -> None:
    board = Board(answers=[code] * 1000)
    with pytest.raises(FabricError):
        board.declared(inputs(PAIRS)).ensure(applied=[])
    assert seconds / 2 < board.time <= seconds


def test_what_somebody_else_did_meanwhile_is_success() -> None:
    board = Board(active={7})
    board.meanwhile["deactivate 7"] = board.active.clear
    board.meanwhile["activate 8"] = lambda: board.active.add(8)
    board.declared(inputs([8])).ensure(applied=[7])
    assert board.active == {8}


def test_another_table_on_the_board_is_refused_with_both_sides() -> None:
    board = Board()
    board.table[3], board.table[15] = (1, 2), (9,)
    del board.table[14]
    with pytest.raises(Refused) as refused:
        board.declared(inputs(PAIRS)).ensure(applied=[])
    message = str(refused.value)
    assert "partition 3 is GPUs 1, 3 in the table of hgx-h100 and GPUs 1, 2 on the board" in message
    assert "partition 14 is GPUs 8 in the table of hgx-h100 and absent on the board" in message
    assert "partition 15 is absent in the table of hgx-h100 and GPUs 9 on the board" in message
    assert board.calls == ["list", "unsupported"]


def test_without_addresses_of_its_gpus_no_partition_is_deactivated() -> None:
    board = Board(active={3})
    some = {m: a for m, a in GPUS.items() if m != "3"}
    with pytest.raises(Refused, match="GPUs 3 are in use cannot be known"):
        board.declared(inputs([7], gpus=some)).ensure(applied=[])
    assert board.active == {3}


def test_a_vm_that_starts_between_two_steps_keeps_its_links() -> None:
    board = Board(active={7, 8})
    board.meanwhile["deactivate 7"] = lambda: board.used.add(2)
    with pytest.raises(Refused, match=r"partition 8 \(GPUs 2\): process 4242"):
        board.declared(inputs([])).ensure(applied=[7, 8])
    assert board.active == {8}


def test_release_takes_down_what_is_ours_and_leaves_what_is_not() -> None:
    board = Board(active={7, 8, 14})
    board.declared(inputs([7, 8])).release(applied=[7, 8])
    assert board.active == {14}
    board.declared(inputs([7, 8])).release(applied=[7, 8])
    assert board.active == {14}


def test_a_release_is_refused_while_a_vm_runs_even_after_a_restart() -> None:
    board = Board(active={7, 8}, used={2})
    board.restart()
    with pytest.raises(Refused, match="GPU 2"):
        board.declared(inputs([7, 8])).release(applied=[7, 8])
    assert board.active == {7, 8}


def test_reading_never_changes_anything() -> None:
    board = Board(active={7, 8})
    assert active_ids(board.declared(inputs([])).read()) == (7, 8)
    board.restart()
    assert active_ids(board.declared(inputs([])).read()) == ()
    assert set(board.calls) == {"list"}
