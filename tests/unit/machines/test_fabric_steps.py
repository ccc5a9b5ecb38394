"""Every answer of a fabric manager and what is done about it; versions; inputs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import CODES, Action, FabricError, action, code_of_exit
from tests.unit.machines.fabric_board import GPUS, PAIRS, Board, inputs

REFUSED = yaml.safe_load((Path(__file__).parent / "fabric_inputs.yaml").read_text())
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


def test_equal_or_unknown_versions_are_fine() -> None:
    inputs(PAIRS, fabric_manager_version="595.58.03", guest_driver="595.58.03")
    inputs(PAIRS, guest_driver="595.58.03")


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_inputs_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){said}"):
        inputs(**{"partitions": PAIRS, **changes})
