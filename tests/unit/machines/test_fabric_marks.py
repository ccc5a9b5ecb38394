"""A layout and the leases of its machine: what leases keep down is neither drift nor brought up."""

import pytest

from gpuclusters.core.finding import Refused
from tests.unit.machines.fabric_board import GPUS, PAIRS, SINGLES, Board, inputs


def test_a_partition_of_a_gpu_that_is_recycled_is_left_to_its_lease() -> None:
    board = Board(withheld={3})
    made = board.declared(inputs(PAIRS)).ensure(applied=[])
    assert board.active == set(PAIRS) - {3}
    assert made.wanted == tuple(PAIRS)
    assert made.left == (3,)
    # It passes by itself: a second run must show nothing.
    assert made.warnings == ()
    assert any("partitions 3 are left to the leases" in note for note in board.notes)

    board.calls.clear()
    again = board.declared(inputs(PAIRS)).ensure(applied=made.wanted)
    assert again.left == (3,)
    assert "activate 3" not in board.calls


def test_a_refresh_while_gpus_are_recycled_shows_no_drift() -> None:
    board = Board(active={4, 5, 6}, withheld={1, 3})
    seen = board.declared(inputs(PAIRS)).observe(wanted=PAIRS)
    assert (seen.left, seen.warnings) == ((3,), ())
    # What nobody withholds was taken down by hand.
    board.withheld.clear()
    assert board.declared(inputs(PAIRS)).observe(wanted=PAIRS).left == ()
    # Where all is up nobody is asked about marks.
    board.active.add(3)
    board.trips = 0
    board.declared(inputs(PAIRS)).observe(wanted=PAIRS)
    assert board.trips == 1


def test_a_gpu_in_quarantine_keeps_its_partition_down_and_is_named() -> None:
    board = Board(quarantined={8})
    made = board.declared(inputs([1, 5, 6])).ensure(applied=[])
    assert board.active == {1, 5}
    assert made.left == (6,)
    (warning,) = made.warnings
    assert f"GPU 8 ({GPUS['8']}) is in quarantine: partitions 6 stay inactive" in warning
    seen = board.declared(inputs([1, 5, 6])).observe(wanted=[1, 5, 6])
    assert seen.warnings == made.warnings
    # One whose partition is up, as after a failed release, is not in the way of anything.
    board.active.add(6)
    assert board.declared(inputs([1, 5, 6])).ensure(applied=[1, 5, 6]).warnings == ()


def test_another_layout_takes_down_beside_a_gpu_that_is_recycled_and_brings_up_the_rest() -> None:
    board = Board(active={8, *range(9, 15)}, withheld={1})
    made = board.declared(inputs(PAIRS)).ensure(applied=SINGLES)
    assert board.active == {4, 5, 6}
    assert made.left == (3,)
    # The lease brings it up when the GPU is free; then all is as wanted.
    board.withheld.clear()
    board.active.add(3)
    board.calls.clear()
    assert board.declared(inputs(PAIRS)).ensure(applied=made.wanted).left == ()
    assert board.calls == ["list"]


def test_what_a_lease_takes_down_in_the_middle_of_a_change_is_left_to_it() -> None:
    board = Board(active={3, 4})

    def a_lease_begins() -> None:
        board.active.discard(3)
        board.withheld.add(1)

    board.meanwhile["activate 5"] = a_lease_begins
    made = board.declared(inputs([3, 4, 5])).ensure(applied=[3, 4])
    assert made.left == (3,)


def test_what_is_down_without_a_mark_is_still_a_fault() -> None:
    board = Board(active={3, 4})
    board.meanwhile["activate 5"] = lambda: board.active.discard(3)
    with pytest.raises(Refused, match="find out who else changes partitions"):
        board.declared(inputs([3, 4, 5])).ensure(applied=[3, 4])


def test_a_gpu_without_links_because_it_is_being_reset_is_no_fault() -> None:
    board = Board(links={3: 0}, withheld={3})
    assert board.declared(inputs(PAIRS)).ensure(applied=[]).left == (3,)
    board.withheld.clear()
    with pytest.raises(Refused, match="GPUs 3 have no NVLink"):
        board.declared(inputs(PAIRS)).ensure(applied=[])


@pytest.mark.parametrize("lists", [True, False], ids=["answers lists", "answers -8"])
def test_a_forgetful_fabric_manager_is_not_told_that_what_is_recycled_is_active(
    lists: bool,
) -> None:
    board = Board(withheld={1}, used={7}, waits_for_list=True, lists_while_waiting=lists)
    made = board.declared(inputs(PAIRS)).ensure(applied=PAIRS)
    assert "set [4, 5, 6]" in board.calls
    assert made.left == (3,)
    assert board.active == {4, 5, 6}


def test_with_all_gpus_recycled_a_fabric_manager_is_told_that_nothing_is_active() -> None:
    board = Board(withheld=set(range(1, 9)))
    made = board.declared(inputs([0])).ensure(applied=[0])
    assert made.left == (0,)
    assert "set [0]" not in board.calls
    assert board.active == set()


def test_a_mark_beside_a_running_vm_does_not_cost_it_its_links() -> None:
    # In quarantine because the VM does not end: its partition was never taken down.
    board = Board(quarantined={1}, used={1}, waits_for_list=True)
    board.declared(inputs(PAIRS)).ensure(applied=PAIRS)
    assert "set [3, 4, 5, 6]" in board.calls
    assert board.active == set(PAIRS)


def test_what_goes_for_good_goes_whatever_is_marked() -> None:
    board = Board(active={4, 5, 6}, withheld={1, 2})
    board.declared(inputs(PAIRS)).release(applied=PAIRS)
    assert board.active == set()
