"""Every state that GPU leases can reach in small worlds, and proof that a broken machine is caught."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from gpuclusters.lease import decide as lease_decisions
from gpuclusters.lease.board import Board, ClearMemory, Reset
from gpuclusters.lease.model import EDGES, Phase, RecyclePolicy
from tests.fixtures.tables import beside
from tests.unit.tenants.lease_world import BrokenError, Explored, Mishaps, Setting, explore

WRITTEN = beside(__file__, "lease_worlds.yaml")
WORLDS: dict[str, dict[str, Any]] = WRITTEN["worlds"]


def setting(world: str) -> Setting:
    """The world of that name."""
    row = {k: v for k, v in WORLDS[world].items() if k not in ("states", "transitions", "long")}
    partitions = {n: tuple(gpus) for n, gpus in WRITTEN["boards"][row.pop("board")].items()}
    policy, start = RecyclePolicy(row.pop("policy", "full")), Phase(row.pop("start", "Free"))
    pods, may = tuple(row.pop("pods")), Mishaps(**row.pop("may", {}))
    return Setting(partitions, pods, may, policy=policy, start=start, **row)


@cache
def sound(world: str) -> Explored:
    """A world of the machine as it is; what several tests look at is visited once."""
    return explore(setting(world))


def named(world: str) -> str:
    """An id that tests/mutants can name."""
    return world.replace(",", "").replace(" ", "-")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, marks=[pytest.mark.long] if "long" in row else [])
        for world, row in WORLDS.items()
    ],
    ids=named,
)
def test_no_reachable_state_breaks_a_promise(
    world: str, record_property: Callable[[str, object], None]
) -> None:
    explored = sound(world)
    print(f"{world}: {explored.states} states, {explored.transitions} transitions")
    record_property("states", explored.states)
    record_property("transitions", explored.transitions)
    assert explored.states >= WORLDS[world]["states"]
    assert explored.transitions >= WORLDS[world]["transitions"]


def test_the_explored_worlds_use_every_edge_of_the_machine() -> None:
    stored: set[tuple[Phase, Phase]] = set()
    for world in (
        "hardware refuses, time passes, pods vanish, an operator rechecks",
        "a stack makes its layout active while GPUs of it are recycled",
        "a stack makes its layout active while the kubelet gives a GPU away",
    ):
        stored |= sound(world).stored
    assert {(a, b) for a, after in EDGES.items() for b in after} - stored == set()


def test_evidence_of_an_earlier_cycle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mutant of several places; those of one place each are in tests/mutants."""
    monkeypatch.setattr(lease_decisions, "Reset", lambda module, _cycle: Reset(module, 0))
    monkeypatch.setattr(
        lease_decisions, "ClearMemory", lambda module, _cycle: ClearMemory(module, 0)
    )
    monkeypatch.setattr(Board, "_outdated", lambda *_: False)
    with pytest.raises(BrokenError, match="not verified"):
        explore(setting("two tenants take turns on one GPU"))
