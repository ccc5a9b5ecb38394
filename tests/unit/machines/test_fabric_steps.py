"""Every answer of a fabric manager and what is done about it; health of links; module maps; versions."""

import contextlib
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import CODES, Action, FabricError, action, code_of_exit
from tests.unit.machines.fabric_board import GPUS, PAIRS, SINGLES, Board, inputs

ON_ACTIVATE = {
    **dict.fromkeys([-5, -8, -9, -14, -15, -22], Action.RETRY),
    **dict.fromkeys([-7, -13, -16, -23], Action.LOOK),
    -10: Action.QUARANTINE,
    -17: Action.SUCCEED,
}
ON_DEACTIVATE = {
    **dict.fromkeys([-5, -8, -9, -14, -15, -22], Action.RETRY),
    **dict.fromkeys([-4, -7, -13, -16, -23], Action.LOOK),
    -10: Action.QUARANTINE,
    -18: Action.SUCCEED,
}


@pytest.mark.parametrize("code", range(-29, 0))
def test_every_code_has_a_meaning_a_remedy_and_an_action(code: int) -> None:
    assert CODES[code].meaning
    assert CODES[code].remedy
    assert code_of_exit(code & 0xFF) == code
    assert action(code, "activate") is ON_ACTIVATE.get(code, Action.FAIL)
    assert action(code, "deactivate") is ON_DEACTIVATE.get(code, Action.FAIL)
    shown = str(FabricError("hgx-01", "do it", code, "words"))
    assert f"answered {code}, {CODES[code].meaning} (words); {CODES[code].remedy}" in shown


@pytest.mark.parametrize("code", range(-29, 0))
@pytest.mark.parametrize("verb", ["activate", "deactivate"])
def test_what_a_step_does_about_each_code(code: int, verb: str) -> None:
    # A list, then the only step, which is answered with the code once.
    board = Board(active=set() if verb == "activate" else {7}, answers=[None, code])
    wanted, applied = ([7], []) if verb == "activate" else ([], [7])
    expected = action(code, verb)
    if expected in (Action.RETRY, Action.SUCCEED):
        if expected is Action.SUCCEED:  # it is so already: somebody else did it
            board.active = set(wanted)
            board.answers = []
        board.declared(inputs(wanted)).ensure(applied=applied)
        assert board.active == set(wanted)
        assert (board.time > 0) is (expected is Action.RETRY)
        return
    with pytest.raises(FabricError) as failed:
        board.declared(inputs(wanted)).ensure(applied=applied)
    assert f"could not {verb} partition 7 (GPUs 1)" in str(failed.value)
    assert ("quarantine" in str(failed.value)) is (expected is Action.QUARANTINE)
    assert board.time == 0


@pytest.mark.parametrize("code", [-7, -16, -23])
def test_a_code_that_can_mean_already_active_is_looked_into(code: int) -> None:
    board = Board(answers=[None, code])
    board.meanwhile["activate 7"] = lambda: board.active.add(7)
    assert board.declared(inputs([7])).ensure(applied=[]).wanted == (7,)


def test_a_restart_between_the_list_and_a_step_is_told_what_stays_active() -> None:
    board = Board(active={7, 8, 14}, used={8})
    board.meanwhile["deactivate 8"] = board.restart
    board.declared(inputs([3, 14])).ensure(applied=[7, 8, 14])
    assert board.active == {3, 14}
    assert "set [8, 14]" in board.calls  # neither what is down already nor what is not up yet


@pytest.mark.parametrize("lists", [True, False], ids=["answers lists", "answers -8"])
def test_a_restart_before_the_first_step_is_told_that_nothing_is_active(lists: bool) -> None:
    board = Board(waits_for_list=True, lists_while_waiting=lists)
    board.declared(inputs(PAIRS)).ensure(applied=[])
    assert board.active == set(PAIRS)
    assert "set []" in board.calls


def test_partitions_without_support_are_a_warning_unless_they_are_wanted() -> None:
    board = Board()
    for number in (0, 2, 6, 14):
        board.left_out[number] = board.table.pop(number)
    made = board.declared(inputs([1, 5, 12])).ensure(applied=[])
    assert board.active == {1, 5, 12}
    (warning,) = made.warnings
    assert "partitions 0, 2, 6, 14 are not supported at the moment because GPUs 8 failed" in warning
    assert any(warning in note for note in board.notes)

    board.calls.clear()
    with pytest.raises(Refused) as refused:
        board.declared(inputs([1, 2])).ensure(applied=[1, 5, 12])
    assert "partitions 2 are wanted" in str(refused.value)
    assert f"GPUs 8 ({GPUS['8']}) failed" in str(refused.value)
    assert board.active == {1, 5, 12}


def test_a_partition_left_out_with_other_gpus_is_another_table() -> None:
    board = Board()
    del board.table[3]
    board.left_out[3] = (1, 2)
    with pytest.raises(Refused, match="partition 3 is GPUs 1, 3 in the table"):
        board.declared(inputs([1, 2])).ensure(applied=[])


def test_fewer_links_are_a_warning_and_no_links_a_refusal_where_gpus_are_to_talk() -> None:
    board = Board(links={3: 16})
    made = board.declared(inputs(PAIRS)).ensure(applied=[])
    assert made.warnings == ("GPU 3 has 16 of 18 NVLinks: its partitions are slower",)

    cut_off = Board(links={3: 0})
    with pytest.raises(Refused, match=r"partition 3: GPUs 3 have no NVLink.*quarantine"):
        cut_off.declared(inputs(PAIRS)).ensure(applied=[])
    assert cut_off.active == set()
    cut_off.declared(inputs(SINGLES)).ensure(applied=[])  # alone it needs none

    running = Board(active=set(PAIRS), links={3: 0}, used={1, 3})
    assert running.declared(inputs(PAIRS)).ensure(applied=PAIRS).warnings


def test_gpus_in_other_modules_stop_before_anything_is_changed() -> None:
    board = Board(active=set(SINGLES), shuffled={GPUS["1"]: 2, GPUS["2"]: 1})
    board.restart()
    with pytest.raises(Refused, match="GPUs 1, 2 are not at the PCI addresses"):
        board.declared(inputs(PAIRS), modules=True).ensure(applied=SINGLES)
    assert board.calls == ["modules"]
    # GPUs that cannot say it are taken as stated.
    stated = inputs(SINGLES, module_map="stated")
    board.declared(stated, modules=True).ensure(applied=SINGLES)
    assert board.calls.count("modules") == 1


def test_gpus_that_vms_have_are_not_asked_and_it_is_said() -> None:
    board = Board(active=set(SINGLES), used={5})
    board.declared(inputs(SINGLES), modules=True).ensure(applied=SINGLES)
    assert any("GPUs 5 are in use" in note for note in board.notes)


@pytest.mark.parametrize("manager", ["595.58.04", "595.58", "580.95.05"])
def test_a_fabric_manager_of_another_version_than_the_guests_driver_is_refused(
    manager: str,
) -> None:
    with pytest.raises(ValidationError) as refused:
        inputs(PAIRS, fabric_manager_version=manager, guest_driver="595.58.03")
    assert f"is {manager} and the guests' driver 595.58.03" in str(refused.value)
    assert "install nvidia-fabricmanager 595.58.03" in str(refused.value)


def test_equal_or_unknown_versions_are_fine() -> None:
    inputs(PAIRS, fabric_manager_version="595.58.03", guest_driver="595.58.03")
    inputs(PAIRS, guest_driver="595.58.03")


def test_a_layout_is_cut_around_what_is_in_use() -> None:
    board = Board(active={1, 2}, used={5})
    made = board.declared(inputs(None, layout=[4, 2, 2])).ensure(applied=[1, 2])
    assert made.wanted == (2, 3, 4)
    assert board.active == {2, 3, 4}

    board.calls.clear()
    again = board.declared(inputs(None, layout=[2, 4, 2])).ensure(applied=made.wanted)
    assert again.wanted == made.wanted
    assert board.calls == ["list"]

    both = Board(active={1, 2}, used={1, 5})
    with pytest.raises(Refused, match=r"keeps the partitions that are in use: 1 \(GPUs"):
        both.declared(inputs(None, layout=[8])).ensure(applied=[1, 2])
    assert both.active == {1, 2}
    board.used.clear()
    board.declared(inputs(None, layout=[4, 2, 2])).release(applied=made.wanted)
    assert board.active == set()


def test_numbers_that_hit_a_vm_are_refused_with_numbers_that_do_not() -> None:
    board = Board(active={1, 2}, used={5})
    with pytest.raises(Refused, match=r"or write `partitions: \[2, 3, 4\]` for this node"):
        board.declared(inputs([1, 5, 6])).ensure(applied=[1, 2])
    assert board.active == {1, 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout": [4, 4]}, "either partitions or layout"),
        ({"partitions": None}, "either partitions or layout"),
        ({"partitions": None, "layout": [3, 5]}, "has no partitions of 3, 5 GPUs"),
        ({"baseboard": "hgx-a100"}, "give the board's own table"),
        ({"table": {"0": [1, 1]}}, "has a GPU twice"),
        ({"table": {"0": [1], "1": [1]}}, "have the same GPUs"),
        ({"table": {"64": [1]}}, "numbers are 0 to 63"),
        ({"table": {"0": [17]}}, "modules are 1 to 16"),
        ({"guest_driver": "latest"}, "write all of its numbers"),
    ],
)
def test_inputs_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        inputs(**{"partitions": PAIRS, **changes})


def test_a_board_with_a_table_of_its_own_is_planned_with_it() -> None:
    table = {"5": [1, 2, 3, 4], "6": [5, 6, 7, 8], "9": list(range(1, 9))}
    board = Board(table={int(n): tuple(m) for n, m in table.items()})
    board.declared(inputs([5, 6], baseboard="hgx-a100", table=table)).ensure(applied=[])
    assert board.active == {5, 6}
    board.table[6] = (5, 6, 7)
    with contextlib.suppress(Refused):
        board.declared(inputs([9], baseboard="hgx-a100", table=table)).ensure(applied=[5, 6])
        pytest.fail("another table was accepted")
