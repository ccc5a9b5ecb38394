"""50 agents with 50 ms for every command: what of the time is the batch rule's, and what is ours.

The ideal schedule knows when a host has joined without asking: as many joins one after another as the rule
says, each the commands that it takes and the time that RKE2 takes. Ours asks, with growing pauses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bench import joining
from gpuclusters.core.converge import Clock
from gpuclusters.rke2.model import Join, join_order

SERVERS, AGENTS, LATENCY = 3, 50, 0.05
_POLL_CALLS = 1
"""What an ideal schedule asks too: once, at the right moment."""


def order(at_once: int) -> tuple[Join, ...]:
    return join_order(
        [f"server-{n}" for n in range(SERVERS)], [f"agent-{n}" for n in range(AGENTS)], at_once
    )


def ideal(joins: tuple[Join, ...], calls: dict[str, int], seconds: float) -> float:
    """The end of the last join, if nobody asked before there is something to hear."""
    ends: dict[str, float] = {}
    for join in joins:
        before = ends[join.after] if join.after is not None else 0.0
        ends[join.host] = before + calls[join.host] * LATENCY + seconds
    return max(ends.values())


@pytest.mark.parametrize("seconds", [5.0, 30.0, 120.0])
def test_the_schedule_is_that_of_the_batch_rule(
    seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a clock of its own, so that the result is exact and nothing of this machine is in it."""
    lines = []
    for at_once in (1, 10, 25, 50):
        joins = order(at_once)
        ends: dict[str, float] = {}
        calls: dict[str, int] = {}
        begun = time.process_time()
        for join in joins:
            clock = joining.OwnClock()
            clock.sleep(ends[join.after] if join.after is not None else 0.0)
            machine = joining.run(join, clock, LATENCY, seconds)
            ends[join.host] = clock.now()
            calls[join.host] = machine.calls - machine.polls + _POLL_CALLS
        used = (time.process_time() - begun) / len(joins) * 1000
        took, best = max(ends.values()), ideal(joins, calls, seconds)
        rounds = SERVERS + -(-AGENTS // at_once)
        # A question every two seconds at the most, and one that is under way.
        assert took - best <= rounds * (2.0 + 2 * LATENCY)
        lines.append((at_once, rounds, best, took, took / best, max(calls.values()), used))
    with capsys.disabled():
        print(
            f"\njoin of {seconds:.0f} s   window rounds  ideal s  ours s  ratio  commands  CPU ms"
        )
        for line in lines:
            print("              {:6} {:6} {:8.1f} {:7.1f} {:6.3f} {:9} {:7.1f}".format(*line))


@pytest.mark.timeout(300)
def test_threads_and_real_waiting_add_little(capsys: pytest.CaptureFixture[str]) -> None:
    """The same with real pauses, as many threads as there are hosts, and this machine's own load."""
    seconds, at_once = 3.0, 10
    joins = order(at_once)
    clock = Clock()
    done: dict[str, Future[None]] = {}
    calls: dict[str, int] = {}
    busy = _Highest()

    def step(join: Join) -> Callable[[], None]:
        def act() -> None:
            if join.after is not None:
                done[join.after].result()
            with busy:
                machine = joining.run(join, clock, LATENCY, seconds)
            calls[join.host] = machine.calls - machine.polls + _POLL_CALLS

        return act

    begun, used = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(max_workers=len(joins)) as pool:
        for join in joins:
            done[join.host] = pool.submit(step(join))
    for future in done.values():
        future.result()
    took, used = time.monotonic() - begun, time.process_time() - used
    best = ideal(joins, calls, seconds)
    assert busy.most <= at_once
    with capsys.disabled():
        print(
            f"\nreal: {SERVERS} servers, {AGENTS} agents, {at_once} at once, join {seconds:.0f} s: ideal "
            f"{best:.1f} s, ours {took:.1f} s, ratio {took / best:.2f}, {used:.2f} s of processor"
        )


class _Highest:
    """How many were inside at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1
