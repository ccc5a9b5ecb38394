"""What is decided about leases of a host whose node is lost, has booted, or gave a GPU to another pod."""

from dataclasses import replace
from typing import Any

import pytest

from gpuclusters.lease.board import (
    ActivatePartition,
    AdmitPod,
    Board,
    BoardSeen,
    DeletePod,
    Failed,
    Lease,
    NodeLost,
    Pod,
    PodState,
    ReadBoard,
    Succeeded,
    Withhold,
)
from gpuclusters.lease.decide import decide
from gpuclusters.lease.model import HELD, WAITING_FOR_NODE, Holder, Phase
from gpuclusters.lease.plan import STANDS_STILL
from tests.fixtures.tables import beside
from tests.unit.tenants.lease_world import Setting

LOST = beside(__file__, "lost_nodes.yaml")
ORDERS = Setting({0: (1, 2)}, (2,)).orders()
MESSAGE = "h is NotReady since 2026-11-22T15:04:05Z"
LATE = 1e6
"""After every deadline."""


def holder(*, admitted: bool = False, allocated: bool = False) -> Holder:
    return Holder(
        tenant="t", namespace="n", pod="p0", pod_uid="p0", container="", partition=0, gpus=(1, 2),
        admitted=admitted, allocated=allocated,
    )  # fmt: skip


def board(
    *phases: Phase,
    state: PodState = PodState.WAITING,
    admitted: bool = False,
    allocated: bool = False,
    deadline: float | None = 120.0,
    since: float = 0.0,
    there: bool = False,
) -> Board:
    """A host, lost unless it is there, with a GPU in each of the phases; an admitted pod was let go."""
    held = holder(admitted=admitted, allocated=allocated)
    leases = {
        module: Lease(module, phase, 1, held if phase in HELD else None, deadline=deadline)
        for module, phase in enumerate(phases, start=1)
    }
    pod = Pod("p0", state, "h/0" if admitted else "")
    away = None if there else NodeLost(since, MESSAGE)
    return Board(ORDERS, leases, {"p0": pod}, away=away)


def carried_out(board: Board, now: float) -> Board:
    """The board once all that follows at this moment is stored."""
    for _ in range(10):
        plan = decide(board, now)
        if not plan.changes:
            return board
        for change in plan.changes:
            board = board.with_lease(change.after)
    raise AssertionError("it never rests")


@pytest.mark.parametrize("phase", sorted(STANDS_STILL))
def test_on_the_way_to_free_time_stands_still_until_the_node_is_back(phase: Phase) -> None:
    lost = board(phase, phase, state=PodState.GOING, admitted=True)
    waiting = carried_out(lost, 5.0)
    for lease in waiting.leases.values():
        assert (lease.phase, lease.deadline) == (phase, None)
        assert (lease.reason, lease.message) == (WAITING_FOR_NODE, MESSAGE)
    # However long it takes, and whoever else looks with nothing but what is stored.
    assert decide(waiting, LATE).changes == ()
    assert decide(lost, LATE).changes == decide(lost, 5.0).changes
    back = carried_out(waiting.with_away(None), LATE)
    for lease in back.leases.values():
        assert (lease.phase, lease.reason, lease.message) == (phase, "", "")
        assert lease.deadline == LATE + (ORDERS.limits.of(phase) or 0)
    closed = decide(back, 2 * LATE).changes
    assert {change.after.phase for change in closed} == {Phase.QUARANTINED}


def test_what_the_message_says_follows_the_node() -> None:
    lost = carried_out(board(Phase.RESETTING, Phase.FREE), 0.0)
    gone = lost.with_away(NodeLost(0.0, "the cluster has no node h"))
    assert carried_out(gone, 0.0).leases[1].message == "the cluster has no node h"


def test_a_machine_that_answers_though_its_node_is_lost_goes_on_with_its_gpus() -> None:
    waiting = carried_out(board(Phase.RESETTING, Phase.FREE), 0.0)
    mark = Withhold((1, 1, Phase.RESETTING))
    assert mark in decide(waiting, LATE).effects
    after = waiting.asked(mark).learnt(Succeeded(mark), LATE)
    assert any(isinstance(effect, ReadBoard) for effect in decide(after, LATE).effects)


@pytest.mark.parametrize("case", LOST.values(), ids=LOST)
def test_what_becomes_of_gpus_of_a_node_that_is_lost(case: dict[str, Any]) -> None:
    phase, keys = Phase(case["phase"]), ("admitted", "allocated", "deadline", "since", "there")
    now = LATE if case["at"] == "late" else case["at"]
    pod = case.get("pod", "WAITING")
    before = board(
        phase, phase, state=PodState[pod or "WAITING"], **{k: case[k] for k in keys if k in case}
    )
    before = before if pod else replace(before, pods={})
    plan = decide(before, now)
    assert plan.wake == case.get("wake", plan.wake)
    assert case.get("why", "") in "".join(change.why for change in plan.changes)
    after = carried_out(before, now)
    if "become" not in case:
        assert after is before
    for lease in after.leases.values():
        assert lease.phase == case.get("become", phase)
        assert (lease.holder is not None) is (lease.phase in HELD)
        assert lease.shown == frozenset()
        if because := case.get("because"):
            assert (lease.reason, lease.deadline) == (because, None)
    asked = [x for x in decide(after, now).effects if isinstance(x, AdmitPod | DeletePod)]
    assert [type(effect).__name__ for effect in asked] == case.get("asks", [])


def test_free_gpus_are_offered_again_only_when_the_machine_has_answered() -> None:
    lost = board(Phase.FREE, Phase.FREE, deadline=None)
    assert not lost.serves
    back = lost.with_away(None)
    assert not back.serves
    (look,) = decide(back, 0.0).effects
    assert isinstance(look, ReadBoard)
    silent = back.asked(look).learnt(Failed(look, "not reached"), 0.0)
    assert not silent.serves
    assert decide(silent, LATE).effects == (look,)
    seen = BoardSeen(frozenset({0}), frozenset(), frozenset())
    heard = silent.asked(look).learnt(Succeeded(look, seen), LATE)
    assert heard.serves
    assert decide(heard, LATE).changes == ()
    assert not heard.after_boot().serves, "it has booted: its fabric manager is not up yet"


def test_a_pod_whose_gpus_are_marked_allocated_too_early_is_still_let_go() -> None:
    early = board(Phase.LEASED, Phase.LEASED, admitted=True, allocated=True, there=True)
    early = replace(early, pods={"p0": Pod("p0", PodState.WAITING)})
    assert decide(early, 0.0).effects == (AdmitPod("p0", "n", "p0", "h/0"),)


def test_a_pod_whose_gpu_the_kubelet_gave_to_another_is_deleted_and_gives_back_all_of_them() -> (
    None
):
    leased = board(
        Phase.LEASED, Phase.LEASED, state=PodState.GOING, admitted=True, allocated=True, there=True
    )
    disputed = leased.with_lease(replace(leased.leases[2], disputed=True))
    plan = decide(disputed, 0.0)
    assert [change.after.phase for change in plan.changes] == [Phase.RELEASING] * 2
    assert "to another pod" in plan.changes[0].why
    releasing = carried_out(disputed, 0.0)
    (effect,) = decide(releasing, 0.0).effects
    assert isinstance(effect, DeletePod)
    # As long as the other pod has it, it is not reset; afterwards it is closed.
    ended = releasing.with_pod(replace(releasing.pods["p0"], state=PodState.GONE))
    for lease in ended.leases.values():
        ended = ended.with_lease(replace(lease, holder=holder(admitted=True)))
    assert decide(ended, 0.0).changes == ()
    late = decide(ended, LATE).changes
    assert {(c.after.phase, c.after.last_tenant) for c in late} == {(Phase.QUARANTINED, "t")}


def test_after_a_boot_free_partitions_come_up_and_closed_gpus_are_marked_anew() -> None:
    orders = replace(ORDERS, keep_active=True)
    free = Board(orders, {m: Lease(m, Phase.FREE, 1) for m in (1, 2)})
    (look,) = decide(free, 0.0).effects
    up, down = (BoardSeen(frozenset({0}), frozenset(active), frozenset()) for active in ({0}, ()))
    settled = free.asked(look).learnt(Succeeded(look, up), 0.0)
    assert decide(settled, 0.0).effects == ()
    (again,) = decide(settled.after_boot(), 0.0).effects
    booted = settled.after_boot().asked(again).learnt(Succeeded(again, down), 0.0)
    assert decide(booted, 0.0).effects == (ActivatePartition(0, frozenset()),)

    closed = Board(orders, {1: Lease(1, Phase.QUARANTINED, 1, reason="Policy")})
    (mark,) = decide(closed, 0.0).effects
    assert mark == Withhold((1, 1, Phase.QUARANTINED))
    marked = closed.asked(mark).learnt(Succeeded(mark), 0.0)
    assert decide(marked, 0.0).effects == ()
    assert decide(marked.after_boot(), 0.0).effects == (mark,)


@pytest.mark.parametrize("phase", ["Free", "Resetting", "Scrubbing", "Verifying"])
def test_a_gpu_that_is_nobodys_is_closed_when_the_kubelet_gives_it_to_a_pod(phase: str) -> None:
    disputed = Board(ORDERS, {1: Lease(1, Phase(phase), 1, disputed=True)})
    (change,) = decide(disputed, 0.0).changes
    assert (change.after.phase, change.after.reason) == (Phase.QUARANTINED, "HeldByAnotherPod")
    # A recheck waits until the kubelet has let it go.
    asked = replace(change.after, recheck_asked="again")
    assert decide(disputed.with_lease(asked), 0.0).changes == ()
    agreed = disputed.with_lease(replace(asked, disputed=False))
    (change,) = decide(agreed, 0.0).changes
    assert change.after.phase is Phase.RESETTING
