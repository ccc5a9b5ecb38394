"""Partitions of a board: planning, and reconciling through a fabric manager that keeps state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.domain.fabric import TABLES, Baseboard
from gpuclusters.domain.fabric_state import (
    FabricError,
    FabricInputs,
    check_active_set,
    code_of_exit,
    plan_steps,
    table_differences,
)
from gpuclusters.domain.ports import LivePartition, PciFunction
from gpuclusters.domain.reconcile_fabric import (
    DEADLINE_SECONDS,
    NO_CONNECTION_SECONDS,
    Fabric,
    active_ids,
    ensure_partitions,
    read_partitions,
    release_partitions,
)
from gpuclusters.domain.refusals import RefusalError

H100 = TABLES[Baseboard.HGX_H100]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0H0bu9Qxk2c3pDfkz8kRtRkHkYkB1q0h3p2v0nF3oA"
GPUS = {str(m): f"0000:{m:02x}:00.0" for m in range(1, 9)}
SINGLES, PAIRS = list(range(7, 15)), [3, 4, 5, 6]


def inputs(partitions: Sequence[int], **changes: Any) -> FabricInputs:
    return FabricInputs.model_validate(
        {
            "connection": {"host": "hgx-01", "address": "192.0.2.1", "host_key": KEY},
            "board": "board-0",
            "baseboard": "hgx-h100",
            "partitions": partitions,
            "gpus": GPUS,
        }
        | changes
    )


@dataclass
class Board:
    """A board with its fabric manager, VMs, and a clock that only waiting moves."""

    active: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)  # modules that a VM holds
    table: dict[int, tuple[int, ...]] = field(
        default_factory=lambda: {p.id: p.modules for p in H100.partitions}
    )
    answers: list[int | None] = field(default_factory=list)  # codes before the real answer
    waits_for_list: bool = False
    passes_list_on: bool = True
    place: str = "hgx-01, board board-0"
    calls: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    history: list[set[int]] = field(default_factory=list)
    time: float = 0.0
    on_sleep: Callable[[], None] | None = None

    def _answer(self, action: str, *, works_while_waiting: bool = False) -> None:
        self.calls.append(action)
        if self.answers and (code := self.answers.pop(0)) is not None:
            raise FabricError(self.place, action, code, "")
        if self.waits_for_list and not works_while_waiting:
            raise FabricError(self.place, action, -8, "")

    def partitions(self) -> Mapping[int, LivePartition]:
        self._answer("list")
        return {i: LivePartition(i, m, i in self.active) for i, m in self.table.items()}

    def activate(self, partition_id: int) -> None:
        self._answer(f"activate {partition_id}")
        if partition_id in self.active:
            raise FabricError(self.place, "activate", -17, "")
        busy = {m for i in self.active for m in self.table[i]}
        assert not busy & set(self.table[partition_id]), "a GPU in two active partitions"
        self.active.add(partition_id)
        self.history.append(set(self.active))

    def deactivate(self, partition_id: int) -> None:
        self._answer(f"deactivate {partition_id}")
        if partition_id not in self.active:
            raise FabricError(self.place, "deactivate", -18, "")
        assert not self.used & set(self.table[partition_id]), "pulled from under a VM"
        self.active.remove(partition_id)
        self.history.append(set(self.active))

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        self._answer(f"set {sorted(partition_ids)}", works_while_waiting=True)
        self.waits_for_list = False
        self.active = set(partition_ids) if self.passes_list_on else set()

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        of = {a: int(m) for m, a in GPUS.items()}
        return {
            a: PciFunction(
                a,
                present=True,
                iommu_group="1",
                driver="vfio-pci",
                users=(4242,) if of[a] in self.used else (),
            )
            for a in addresses
        }

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.on_sleep:
            self.on_sleep()

    def note(self, line: str) -> None:
        self.notes.append(line)

    def restart(self) -> None:
        self.active, self.waits_for_list = set(), True

    @property
    def fabric(self) -> Fabric:
        return Fabric(self, self, self, self)


def disjoint_sets() -> st.SearchStrategy[list[int]]:
    """Any set of partitions that can be active together."""

    def build(order: list[int], size: int) -> list[int]:
        chosen: list[int] = []
        for partition_id in order:
            try:
                check_active_set(H100, [*chosen, partition_id])
            except ValueError:
                continue
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
        with pytest.raises(RefusalError, match="in use"):
            ensure_partitions(inputs(wanted), board.fabric, applied=before)
        assert board.active == set(before)  # nothing at all was changed
        return
    live = ensure_partitions(inputs(wanted), board.fabric, applied=before)
    assert board.active == set(active_ids(live)) == set(wanted)
    for step in board.history:  # pairwise disjoint after every step
        check_active_set(H100, step)
    kept = set(before) & set(wanted)
    assert all(kept <= step for step in board.history)


@settings(deadline=None, max_examples=60)
@given(disjoint_sets(), disjoint_sets(), st.integers(0, 20))
def test_interrupted_anywhere_a_second_run_converges(
    before: list[int], wanted: list[int], calls_until_the_end: int
) -> None:
    board = Board(active=set(before), answers=[None] * calls_until_the_end + [-2])
    with contextlib.suppress(FabricError):
        ensure_partitions(inputs(wanted), board.fabric, applied=before)
    board.answers = []
    ensure_partitions(inputs(wanted), board.fabric, applied=before)
    assert board.active == set(wanted)


def test_nothing_is_done_when_all_is_as_wanted() -> None:
    board = Board(active=set(PAIRS))
    ensure_partitions(inputs(PAIRS), board.fabric, applied=PAIRS)
    assert set(board.calls) == {"list"}


def test_deactivations_come_first() -> None:
    plan = plan_steps(SINGLES, [3, 9, 11, 12, 13, 14])
    assert plan.deactivate == (7, 8, 10)
    assert plan.activate == (3,)


@pytest.mark.parametrize("used", [set(), {1, 4}], ids=["idle", "VMs run"])
def test_a_restarted_fabric_manager_gets_its_list_back_before_anything_else(
    used: set[int],
) -> None:
    board = Board(active=set(SINGLES), used=used)
    board.restart()
    ensure_partitions(inputs(SINGLES), board.fabric, applied=SINGLES)
    assert board.active == set(SINGLES)
    assert board.calls[:2] == ["list", f"set {SINGLES}"]
    assert not any(c.startswith(("activate", "deactivate")) for c in board.calls)
    assert "had forgotten" in board.notes[0]


def test_a_fabric_manager_that_forgot_but_answers_gets_its_list_back_too() -> None:
    board = Board(used={1})
    ensure_partitions(inputs(SINGLES), board.fabric, applied=SINGLES)
    assert f"set {SINGLES}" in board.calls


def test_where_all_was_deactivated_by_hand_a_refused_list_does_no_harm() -> None:
    board = Board(answers=[None, -2])  # list, then what a running fabric manager may say
    ensure_partitions(inputs(PAIRS), board.fabric, applied=SINGLES)
    assert board.active == set(PAIRS)
    used = Board(answers=[None, -2], used={1})
    with pytest.raises(FabricError, match="answered -2"):
        ensure_partitions(inputs(PAIRS), used.fabric, applied=SINGLES)


def test_a_first_run_on_a_waiting_fabric_manager_sends_an_empty_list_only_when_no_vm_runs() -> None:
    idle = Board(waits_for_list=True)
    ensure_partitions(inputs(PAIRS), idle.fabric, applied=[])
    assert idle.calls[1] == "set []"
    assert idle.active == set(PAIRS)

    busy = Board(waits_for_list=True, used={3})
    with pytest.raises(FabricError, match="-8, not configured"):
        ensure_partitions(inputs(PAIRS), busy.fabric, applied=[])
    assert not any(c.startswith("set") for c in busy.calls)


def test_a_client_that_drops_the_list_is_noticed_when_a_vm_runs() -> None:
    board = Board(waits_for_list=True, passes_list_on=False, used={3})
    with pytest.raises(RefusalError, match=r"although it was told.*GPU 3.*install an fmpm"):
        ensure_partitions(inputs(SINGLES), board.fabric, applied=SINGLES)
    idle = Board(waits_for_list=True, passes_list_on=False)
    ensure_partitions(inputs(SINGLES), idle.fabric, applied=SINGLES)
    assert idle.active == set(SINGLES)


@pytest.mark.parametrize("code", [-5, -8, -9, -14, -15])
def test_what_passes_is_waited_for(code: int) -> None:
    board = Board(answers=[code, code, code], used={8})
    ensure_partitions(inputs(PAIRS), board.fabric, applied=[])
    assert board.active == set(PAIRS)
    assert board.time > 0


@pytest.mark.parametrize(
    ("code", "seconds"), [(-15, DEADLINE_SECONDS), (-9, NO_CONNECTION_SECONDS)]
)
def test_waiting_ends(code: int, seconds: float) -> None:
    board = Board(answers=[code] * 1000)
    with pytest.raises(FabricError):
        ensure_partitions(inputs(PAIRS), board.fabric, applied=[])
    assert seconds / 2 < board.time <= seconds


@pytest.mark.parametrize("code", [-1, -2, -3, -4, -6, -7, -10, -12, -23, -29, -99])
def test_what_does_not_pass_is_not_waited_for(code: int) -> None:
    board = Board(answers=[code])
    with pytest.raises(FabricError) as failed:
        ensure_partitions(inputs(PAIRS), board.fabric, applied=[])
    assert board.time == 0
    assert f"answered {code}, " in str(failed.value)
    assert "; " in str(failed.value)  # what to do


def test_what_somebody_else_did_meanwhile_is_success() -> None:
    board = Board(active={7})
    deactivate, activate = board.deactivate, board.activate

    def gone_already(partition_id: int) -> None:
        board.active.discard(partition_id)
        deactivate(partition_id)

    def there_already(partition_id: int) -> None:
        board.active.add(partition_id)
        activate(partition_id)

    board.deactivate = gone_already  # type: ignore[method-assign]
    board.activate = there_already  # type: ignore[method-assign]
    ensure_partitions(inputs([8]), board.fabric, applied=[7])
    assert board.active == {8}


def test_another_table_on_the_board_is_refused_with_both_sides() -> None:
    board = Board()
    board.table[3], board.table[15] = (1, 2), (9,)
    del board.table[14]
    with pytest.raises(RefusalError) as refused:
        ensure_partitions(inputs(PAIRS), board.fabric, applied=[])
    message = str(refused.value)
    assert "partition 3 is GPUs 1, 3 in the table of hgx-h100 and GPUs 1, 2 on the board" in message
    assert "partition 14 is GPUs 8 in the table of hgx-h100 and absent on the board" in message
    assert "partition 15 is absent in the table of hgx-h100 and GPUs 9 on the board" in message
    assert board.calls == ["list"]


def test_without_addresses_of_its_gpus_no_partition_is_deactivated() -> None:
    board = Board(active={3})
    some = {m: a for m, a in GPUS.items() if m != "3"}
    with pytest.raises(RefusalError, match="GPUs 3 are in use cannot be known"):
        ensure_partitions(inputs([7], gpus=some), board.fabric, applied=[])
    assert board.active == {3}


def test_a_vm_that_starts_between_two_steps_keeps_its_links() -> None:
    board = Board(active={7, 8})
    original = board.deactivate

    def vm_starts(partition_id: int) -> None:
        original(partition_id)
        board.used.add(2)

    board.deactivate = vm_starts  # type: ignore[method-assign]
    with pytest.raises(RefusalError, match="GPU 2"):
        ensure_partitions(inputs([]), board.fabric, applied=[7, 8])
    assert board.active == {8}


def test_release_takes_down_what_is_ours_and_leaves_what_is_not() -> None:
    board = Board(active={7, 8, 14})
    release_partitions(inputs([7, 8]), board.fabric, applied=[7, 8])
    assert board.active == {14}
    release_partitions(inputs([7, 8]), board.fabric, applied=[7, 8])
    assert board.active == {14}


def test_a_release_is_refused_while_a_vm_runs_even_after_a_restart() -> None:
    board = Board(active={7, 8}, used={2})
    board.restart()
    with pytest.raises(RefusalError, match="GPU 2"):
        release_partitions(inputs([7, 8]), board.fabric, applied=[7, 8])
    assert board.active == {7, 8}


def test_reading_never_changes_anything() -> None:
    board = Board(active={7, 8})
    assert active_ids(read_partitions(board.fabric)) == (7, 8)
    board.restart()
    assert active_ids(read_partitions(board.fabric)) == ()
    assert set(board.calls) == {"list"}


@pytest.mark.parametrize(
    ("status", "code"),
    [(0, 0), (255, -1), (249, -7), (248, -8), (239, -17), (238, -18), (227, -29)],
)
def test_the_exit_status_is_the_lowest_byte_of_the_code(status: int, code: int) -> None:
    assert code_of_exit(status) == code


@pytest.mark.parametrize(
    ("ids", "said"),
    [([3, 7], "both have GPU 1"), ([7, 7], "given twice"), ([0, 14], "both have"), ([15], "no")],
)
def test_sets_that_cannot_be_active_together_are_refused(ids: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_active_set(H100, ids)


def test_equal_tables_have_no_differences() -> None:
    assert list(table_differences(H100, Board().partitions())) == []
