"""Every state that GPU leases can reach in small worlds, and proof that a broken machine is caught."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuclusters.lease import decide as lease_decisions
from gpuclusters.lease.board import (
    ActivatePartition,
    AdmitPod,
    Board,
    BoardSeen,
    ClearMemory,
    DeletePod,
    Lease,
    Pod,
    PodState,
    Reset,
    Succeeded,
    Withhold,
)
from gpuclusters.lease.model import EDGES, Holder, Phase, RecyclePolicy
from tests.unit.tenants.lease_world import BrokenError, Explored, Setting, explore

ONE = {7: (1,)}
PAIR = {0: (1, 2)}
OVERLAPPING = {0: (1, 2), 7: (1,), 8: (2,)}

# What is explored, and at least how many states and transitions that has.
WORLDS: dict[str, tuple[Setting, int, int]] = {
    "two tenants take turns on one GPU": (Setting(ONE, (1, 1)), 3_000, 5_000),
    "hardware refuses, time passes, pods vanish, an operator rechecks": (
        Setting(ONE, (1,), faults=1, expiries=1, rechecks=1, forced=True),
        4_000,
        7_000,
    ),
    "a controller dies while it sees everything late": (
        Setting(ONE, (1,), crashes=1, lag=True, forced=True),
        3_000,
        10_000,
    ),
    "answers are lost and come twice": (Setting(ONE, (1,), losses=1, repeats=1), 500, 1_000),
    "two GPUs in one partition, a deadline passes": (
        Setting(PAIR, (2,), expiries=1),
        5_000,
        10_000,
    ),
    "two GPUs in one partition, hardware refuses": (
        Setting(PAIR, (2,), faults=1, rechecks=1),
        7_000,
        12_000,
    ),
    "two GPUs in one partition, a controller dies, the first steps": (
        Setting(PAIR, (2,), crashes=1, depth=29),
        2_000,
        4_000,
    ),
    "two GPUs in one partition, an answer is lost": (Setting(PAIR, (2,), losses=1), 2_000, 4_000),
    "new GPUs of a layout that stays active": (
        Setting(PAIR, (2,), keep_active=True, start=Phase.RESETTING),
        1_000,
        2_000,
    ),
    "a stack makes its layout active while GPUs of it are recycled": (
        Setting(PAIR, (), keep_active=True, start=Phase.RESETTING, layouts=1, faults=1),
        1_000,
        2_000,
    ),
    "a stack makes its layout active while a tenant comes and goes": (
        Setting(ONE, (1,), keep_active=True, layouts=1, expiries=1),
        1_000,
        2_000,
    ),
    "a stack makes its layout active on a machine whose leases keep none": (
        Setting(ONE, (1,), layouts=1, faults=1, rechecks=1),
        1_000,
        2_000,
    ),
    "a stack makes its layout active while the kubelet gives a GPU away": (
        Setting(ONE, (), start=Phase.RESETTING, layouts=1, disputes=1),
        300,
        500,
    ),
    "every hand-over ends with an operator": (
        Setting(ONE, (1,), policy=RecyclePolicy.QUARANTINE_ALWAYS, rechecks=1),
        300,
        400,
    ),
    "the kubelet gives a GPU to another pod": (
        Setting(ONE, (1,), disputes=1, rechecks=1),
        2_000,
        4_000,
    ),
    "the kubelet gives one of two GPUs to another pod, the first steps": (
        Setting(PAIR, (2,), disputes=1, depth=27),
        3_000,
        6_000,
    ),
    "the node is lost while a tenant comes and goes, and time passes": (
        Setting(ONE, (1,), absences=1, expiries=1),
        5_000,
        10_000,
    ),
    "the node is lost again and again, and a controller dies": (
        Setting(ONE, (1,), absences=2, crashes=1, depth=18),
        2_000,
        5_000,
    ),
    "the node of two GPUs is lost, the first steps": (
        Setting(PAIR, (2,), absences=1, expiries=1, depth=16),
        2_000,
        5_000,
    ),
    "the node of a layout that stays active is lost": (
        Setting(ONE, (1,), keep_active=True, absences=1),
        1_000,
        2_000,
    ),
    "partitions that overlap, two tenants": (Setting(OVERLAPPING, (2, 1), depth=40), 8_000, 14_000),
    "two controllers at once": (
        Setting(ONE, (1,), controllers=2, crashes=1, depth=13),
        1_000,
        3_000,
    ),
    "two controllers at once that see everything late": (
        Setting(PAIR, (2,), controllers=2, lag=True, depth=11),
        1_000,
        3_000,
    ),
}
# Those that take longest. What they are about is looked at above too: on one GPU, or for fewer steps.
LARGE: dict[str, tuple[Setting, int, int]] = {
    "two GPUs in one partition, a controller dies": (
        Setting(PAIR, (2,), crashes=1),
        15_000,
        50_000,
    ),
    "the kubelet gives one of two GPUs to another pod": (
        Setting(PAIR, (2,), disputes=1),
        10_000,
        25_000,
    ),
    "two controllers at once, more steps": (
        Setting(ONE, (1,), controllers=2, crashes=1, depth=18),
        5_000,
        15_000,
    ),
    "two controllers at once that see everything late, more steps": (
        Setting(PAIR, (2,), controllers=2, lag=True, depth=14),
        3_000,
        9_000,
    ),
}


_EXPLORED: dict[str, Explored] = {}


def sound(setting: Setting) -> Explored:
    """A world of the machine as it is; what several tests look at is visited once."""
    if (name := repr(setting)) not in _EXPLORED:
        _EXPLORED[name] = explore(setting)
    return _EXPLORED[name]


def named(world: str) -> str:
    """An id that tests/mutants can name."""
    return world.replace(",", "").replace(" ", "-")


@pytest.mark.parametrize(
    "world",
    [*WORLDS, *(pytest.param(world, marks=pytest.mark.long) for world in LARGE)],
    ids=named,
)
def test_no_reachable_state_breaks_a_promise(
    world: str, record_property: Callable[[str, object], None]
) -> None:
    setting, states, transitions = (WORLDS | LARGE)[world]
    explored = sound(setting)
    print(f"{world}: {explored.states} states, {explored.transitions} transitions")
    record_property("states", explored.states)
    record_property("transitions", explored.transitions)
    assert explored.states >= states
    assert explored.transitions >= transitions


def test_the_explored_worlds_use_every_edge_of_the_machine() -> None:
    stored: set[tuple[Phase, Phase]] = set()
    for world in (
        "hardware refuses, time passes, pods vanish, an operator rechecks",
        "two GPUs in one partition, a deadline passes",
        "a stack makes its layout active while GPUs of it are recycled",
    ):
        stored |= sound(WORLDS[world][0]).stored
    edges = {(a, b) for a, after in EDGES.items() for b in after}
    # A free GPU is quarantined only when its layout cannot be activated again.
    missing = edges - stored - {(Phase.FREE, Phase.QUARANTINED)}
    assert missing == set()


def test_evidence_of_an_earlier_cycle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mutant of several places; those of one place each are in tests/mutants."""
    monkeypatch.setattr(lease_decisions, "Reset", lambda module, _cycle: Reset(module, 0))
    monkeypatch.setattr(
        lease_decisions, "ClearMemory", lambda module, _cycle: ClearMemory(module, 0)
    )
    monkeypatch.setattr(Board, "_outdated", lambda *_: False)
    with pytest.raises(BrokenError, match="not verified"):
        explore(Setting(ONE, (1, 1)))


def test_a_pod_whose_gpus_are_marked_allocated_too_early_is_still_let_go() -> None:
    setting = Setting(ONE, (1,))
    holder = Holder(
        tenant="t", namespace="n", pod="p0", pod_uid="p0", container="", partition=7, gpus=(1,),
        admitted=True, allocated=True,
    )  # fmt: skip
    board = Board(
        setting.orders(),
        {1: Lease(1, Phase.LEASED, 1, holder)},
        {"p0": Pod("p0", PodState.WAITING)},
    )
    plan = lease_decisions.decide(board, 0.0)
    assert plan.effects == (AdmitPod("p0", "n", "p0", "h/7"),)


def test_a_pod_whose_gpu_the_kubelet_gave_to_another_is_deleted_and_gives_back_all_of_them() -> (
    None
):
    setting = Setting(PAIR, (2,))
    holder = Holder(
        tenant="t", namespace="n", pod="p0", pod_uid="p0", container="", partition=0, gpus=(1, 2),
        admitted=True, allocated=True,
    )  # fmt: skip
    pod = Pod("p0", PodState.GOING, "h/0")
    leased = {m: Lease(m, Phase.LEASED, 1, holder, disputed=m == 2) for m in (1, 2)}
    board = Board(setting.orders(), leased, {"p0": pod})
    plan = lease_decisions.decide(board, 0.0)
    assert {change.after.phase for change in plan.changes} == {Phase.RELEASING}
    assert len(plan.changes) == 2
    assert "to another pod" in plan.changes[0].why
    for change in plan.changes:
        board = board.with_lease(change.after)
    (effect,) = lease_decisions.decide(board, 0.0).effects
    assert isinstance(effect, DeletePod)
    # As long as the other pod has it, it is not reset; afterwards it is closed.
    ended = board.with_pod(replace(pod, state=PodState.GONE))
    for lease in ended.leases.values():
        let_go = holder.model_copy(update={"allocated": False})
        ended = ended.with_lease(replace(lease, holder=let_go))
    assert lease_decisions.decide(ended, 0.0).changes == ()
    late = lease_decisions.decide(ended, 1e9).changes
    assert {change.after.phase for change in late} == {Phase.QUARANTINED}
    assert {change.after.last_tenant for change in late} == {"t"}


def test_after_a_boot_free_partitions_come_up_and_closed_gpus_are_marked_anew() -> None:
    orders = Setting(PAIR, (), keep_active=True).orders()
    free = Board(orders, {m: Lease(m, Phase.FREE, 1) for m in (1, 2)})
    (look,) = lease_decisions.decide(free, 0.0).effects
    seen = BoardSeen(frozenset({0}), frozenset({0}), frozenset())
    settled = free.asked(look).learnt(Succeeded(look, seen), 0.0)
    assert lease_decisions.decide(settled, 0.0).effects == ()
    (again,) = lease_decisions.decide(settled.after_boot(), 0.0).effects
    down = BoardSeen(frozenset({0}), frozenset(), frozenset())
    booted = settled.after_boot().asked(again).learnt(Succeeded(again, down), 0.0)
    assert lease_decisions.decide(booted, 0.0).effects == (ActivatePartition(0, frozenset()),)

    closed = Board(orders, {1: Lease(1, Phase.QUARANTINED, 1, reason="Policy")})
    (mark,) = lease_decisions.decide(closed, 0.0).effects
    assert mark == Withhold((1, 1, Phase.QUARANTINED))
    marked = closed.asked(mark).learnt(Succeeded(mark), 0.0)
    assert lease_decisions.decide(marked, 0.0).effects == ()
    assert lease_decisions.decide(marked.after_boot(), 0.0).effects == (mark,)


@pytest.mark.parametrize("phase", ["Free", "Resetting", "Scrubbing", "Verifying"])
def test_a_gpu_that_is_nobodys_is_closed_when_the_kubelet_gives_it_to_a_pod(phase: str) -> None:
    lease = Lease(1, Phase(phase), 1, disputed=True)
    plan = lease_decisions.decide(Board(Setting(ONE, (1,)).orders(), {1: lease}), 0.0)
    (change,) = plan.changes
    assert change.after.phase is Phase.QUARANTINED
    assert change.after.reason == "HeldByAnotherPod"
    # A recheck waits until the kubelet has let it go.
    asked = replace(change.after, recheck_asked="again")
    board = Board(Setting(ONE, (1,)).orders(), {1: asked})
    assert lease_decisions.decide(board, 0.0).changes == ()
    agreed = board.with_lease(replace(asked, disputed=False))
    (change,) = lease_decisions.decide(agreed, 0.0).changes
    assert change.after.phase is Phase.RESETTING
