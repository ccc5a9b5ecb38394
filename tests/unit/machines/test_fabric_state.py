"""Partitions of a board: planning, and reconciling through a fabric manager that keeps state.

Stories, those of leases among them, are in fabric_stories.yaml."""

import contextlib
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.board import DEADLINE_SECONDS, NO_CONNECTION_SECONDS
from gpuclusters.fabric.decide import active_ids
from tests.unit.machines.fabric_board import H100, PAIRS, Board, inputs

STORIES = yaml.safe_load((Path(__file__).parent / "fabric_stories.yaml").read_text())


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


def test_reading_never_changes_anything() -> None:
    board = Board(active={7, 8})
    assert active_ids(board.declared(inputs([])).read()) == (7, 8)
    board.restart()
    assert active_ids(board.declared(inputs([])).read()) == ()
    assert set(board.calls) == {"list"}


def begun(story: dict[str, Any]) -> Board:
    """The board of a story."""
    sets = ("active", "used", "withheld", "quarantined")
    given = story.get("board", {})
    board = Board(**{name: set(v) if name in sets else v for name, v in given.items()})
    for tables in (board.table, board.left_out):
        tables.update({number: tuple(modules) for number, modules in tables.items()})
    if story.get("restarted"):
        board.restart()
    for action, change in story.get("meanwhile", {}).items():
        board.meanwhile[action] = partial(happens, board, change)
    return board


def happens(board: Board, change: dict[str, list[int]] | str) -> None:
    if isinstance(change, str):
        board.restart()
        return
    for name, numbers in change.items():
        there: set[int] = getattr(board, name)
        there |= {number for number in numbers if number > 0}
        there -= {-number for number in numbers if number < 0}


def run(board: Board, of: dict[str, Any]) -> Any:
    """What a run gives; None if it is refused in the words of the story."""
    declared = board.declared(
        inputs(of["wanted"], **of.get("inputs", {})), modules=of.get("modules", False)
    )
    do = of.get("do", "ensure")
    known = {"wanted": of["wanted"]} if do == "observe" else {"applied": of.get("applied", [])}
    act = partial(getattr(declared, do), **known)
    patterns = of.get("refused") or of.get("failed")
    if not patterns:
        return act()
    with pytest.raises(Refused if "refused" in of else FabricError) as refused:
        act()
    assert all(re.search(one, str(refused.value)) for one in patterns), str(refused.value)
    return None


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_a_board_with_a_past_becomes_what_is_declared_or_stays(story: dict[str, Any]) -> None:
    board = begun(story)
    for of in story["runs"]:
        happens(board, of.get("before", {}))
        for number, modules in of.get("table", {}).items():
            board.table.pop(number, None)
            board.table |= {number: tuple(modules)} if modules else {}
        board.calls.clear()
        board.trips = 0
        made = run(board, of)
        first = board.calls[: len(of.get("first", []))]
        steps = [call for call in board.calls if call != "list"]
        found = {"calls": board.calls, "first": first, "steps": steps, "trips": board.trips}
        found["active"] = sorted(board.active)
        if made:
            found |= {"chosen": [*made.wanted], "left": [*made.left]}
        assert {name: found[name] for name in found if name in of} == {
            name: of[name] for name in found if name in of
        }
        assert set(of.get("called", [])) <= set(board.calls)
        assert not any(call.startswith(tuple(of.get("uncalled", []))) for call in board.calls)
        assert all(any(re.search(one, note) for note in board.notes) for one in of.get("notes", []))
        if "warnings" in of:
            assert len(made.warnings) == len(of["warnings"])
            assert all(map(re.search, of["warnings"], made.warnings)), made.warnings
