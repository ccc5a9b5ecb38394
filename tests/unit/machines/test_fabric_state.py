"""Partitions of a board: reconciling through a fabric manager that keeps state, and each of its answers."""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuclusters.core.finding import Refused
from gpuclusters.fabric import model
from gpuclusters.fabric.answers import CODES, Action, FabricError, action, code_of_exit
from gpuclusters.fabric.board import DEADLINE_SECONDS, NO_CONNECTION_SECONDS, FabricBoard
from gpuclusters.fabric.decide import active_ids
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.host.model import PciFunction
from tests.fixtures.made_up import CONNECTION
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting

H100 = TABLES[Baseboard.HGX_H100]
GPUS = {str(m): f"0000:{m:02x}:00.0" for m in range(1, 9)}
PAIRS = [3, 4, 5, 6]


def inputs(partitions: Sequence[int] | None, **changes: Any) -> model.FabricInputs:
    return model.FabricInputs.model_validate(
        {
            "connection": CONNECTION,
            "board": "board-0",
            "baseboard": "hgx-h100",
            "partitions": partitions,
            "gpus": GPUS,
        }
        | changes
    )


@dataclass
class Board(Waiting):
    """A board with its fabric manager, VMs, and a clock that only waiting moves."""

    active: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)  # modules that a VM holds
    table: dict[int, tuple[int, ...]] = field(
        default_factory=lambda: {p.id: p.modules for p in H100.partitions}
    )
    answers: list[int | None] = field(default_factory=list)  # codes before the real answer
    waits_for_list: bool = False
    lists_while_waiting: bool = False
    passes_list_on: bool = True
    target: str = "hgx-01, board board-0"
    calls: list[str] = field(default_factory=list)
    history: list[set[int]] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What others do once, just before an action."""
    trips: int = 0
    shuffled: dict[str, int] = field(default_factory=dict)  # modules elsewhere than in GPUS
    left_out: dict[int, tuple[int, ...]] = field(default_factory=dict)
    links: dict[int, int] = field(default_factory=dict)  # of GPUs that have fewer than 18
    withheld: set[int] = field(default_factory=set)  # modules that leases recycle
    quarantined: set[int] = field(default_factory=set)  # of these

    def _answer(self, action: str, *, works_while_waiting: bool = False) -> None:
        self.calls.append(action)
        if action in self.meanwhile:
            self.meanwhile.pop(action)()
        if self.answers and (code := self.answers.pop(0)) is not None:
            raise FabricError(self.target, action, code, "")
        if self.waits_for_list and not works_while_waiting:
            raise FabricError(self.target, action, -8, "")

    def partitions(self) -> Mapping[int, model.LivePartition]:
        self._answer("list", works_while_waiting=self.lists_while_waiting)
        self.trips += 1
        return self._table()

    def activate(self, partition_id: int) -> None:
        self._answer(f"activate {partition_id}")
        if partition_id in self.active:
            raise FabricError(self.target, "activate", -17, "")
        busy = {m for i in self.active for m in self.table[i]}
        assert not busy & set(self.table[partition_id]), "a GPU in two active partitions"
        self.active.add(partition_id)
        self.history.append(set(self.active))

    def deactivate(self, partition_id: int) -> None:
        self._answer(f"deactivate {partition_id}")
        if partition_id not in self.active:
            raise FabricError(self.target, "deactivate", -18, "")
        assert not self.used & set(self.table[partition_id]), "pulled from under a VM"
        self.active.remove(partition_id)
        self.history.append(set(self.active))

    def change(self, steps: Sequence[model.FabricStep]) -> model.FabricChange:
        """What the script on the host does: in order, up to the first that cannot be done."""
        self.trips += 1
        left: list[int] = []
        for done, step in enumerate(steps):
            deactivates = step.verb == "deactivate"
            modules = {int(a[5:7], 16) for a in step.addresses}
            if deactivates and self.used & modules:
                return model.FabricChange(done, tuple(left), held=f"{step.words}: process 4242")
            if not deactivates and (self.withheld | self.quarantined) & modules:
                left.append(step.partition)
                continue
            try:
                (self.deactivate if deactivates else self.activate)(step.partition)
            except FabricError as error:
                if error.code != (-18 if deactivates else -17):
                    told = FabricError(self.target, step.words, error.code, "")
                    return model.FabricChange(done, tuple(left), failed=told)
        marks = model.LeaseMarks(
            frozenset(GPUS[str(m)] for m in self.withheld | self.quarantined),
            frozenset(GPUS[str(m)] for m in self.quarantined),
        )
        live = None if self.waits_for_list else self._table()
        return model.FabricChange(len(steps), tuple(left), live=live, marks=marks)

    def unsupported(self) -> Mapping[int, tuple[int, ...]]:
        self.calls.append("unsupported")
        return self.left_out

    def _table(self) -> Mapping[int, model.LivePartition]:
        return {
            i: model.LivePartition(
                i,
                modules,
                i in self.active,
                {m: (self.links.get(m, 18), 18 if len(modules) > 1 else 0) for m in modules},
            )
            for i, modules in self.table.items()
        }

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        self._answer(f"set {sorted(partition_ids)}", works_while_waiting=True)
        self.waits_for_list = False
        self.active = set(partition_ids) if self.passes_list_on else set()

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        users = {a: (4242,) if int(m) in self.used else () for m, a in GPUS.items()}
        return {a: PciFunction(a, True, "1", "vfio-pci", users[a]) for a in addresses}

    def read(self, addresses: Sequence[str]) -> model.ModuleReading:
        self.calls.append("modules")
        of = {a: int(m) for m, a in GPUS.items()}
        held = {a: "4242" for a in addresses if of[a] in self.used}
        modules = {a: self.shuffled.get(a, of[a]) for a in addresses if a not in held}
        return model.ModuleReading(modules=modules, held=held)

    def restart(self) -> None:
        self.active, self.waits_for_list = set(), True

    def declared(self, spec: model.FabricInputs, *, modules: bool = False) -> FabricBoard:
        return FabricBoard(spec, self, self, self, self, self if modules else None)


STORIES = beside(__file__, "fabric_stories.yaml")


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
    for call, change in story.get("meanwhile", {}).items():
        board.meanwhile[call] = partial(happens, board, change)
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


REFUSED = beside(__file__, "fabric_inputs.yaml")
ON_BOTH = {
    **dict.fromkeys([-5, -8, -9, -14, -15, -22], Action.RETRY),
    **dict.fromkeys([-7, -13, -16, -23], Action.LOOK),
    -10: Action.QUARANTINE,
}
ON_ACTIVATE = ON_BOTH | {-17: Action.SUCCEED}
ON_DEACTIVATE = ON_BOTH | {-4: Action.LOOK, -18: Action.SUCCEED}


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


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_inputs_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){said}"):
        inputs(**{"partitions": PAIRS, **changes})
