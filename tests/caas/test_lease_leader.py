"""One leader at a time, whatever clocks and servers do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from caas.cluster import ClusterError
from caas.leader import Leader, NotLeadingError
from tests.caas.fakecluster import FakeCluster
from tests.caas.loops import in_loop
from tests.fixtures.waiting import Clock

TIMES = {"duration": 15.0, "valid": 10.0, "renew": 2.0}


class Memory(FakeCluster):
    """One Lease in memory, and faults."""

    down = False
    slow: tuple[Clock, float] | None = None

    async def ask(self, call: str, work: Callable[[], Any]) -> Any:
        if self.slow is not None:
            clock, seconds = self.slow
            clock.now += seconds
        if self.down:
            raise ClusterError("the API server is away", reason="Unreachable")
        return await super().ask(call, work)


def leader(memory: Memory, name: str, clock: Clock) -> Leader:
    return Leader(memory, "", "election", name, **TIMES, clock=clock)  # type: ignore[arg-type]


def two() -> tuple[Memory, Clock, Clock, Leader, Leader]:
    """A server, and two that want to lead by clocks of their own."""
    memory, a_time, b_time = Memory(), Clock(), Clock()
    return memory, a_time, b_time, leader(memory, "a", a_time), leader(memory, "b", b_time)


@in_loop
async def test_who_does_not_renew_stops_before_anybody_else_begins() -> None:
    _memory, a_time, b_time, a, b = two()
    assert await a._try()
    assert not await b._try()
    for _ in range(15):
        a_time.now += 1
        b_time.now += 1
        if await b._try():
            break
        assert a.leads or a_time.now >= 1010
    assert b.leads
    assert not a.leads
    with pytest.raises(NotLeadingError):
        a.check()
    # What it still believes to be its own it does not take back.
    assert not await a._try()
    assert b.leads


@in_loop
async def test_a_leader_is_not_displaced_by_a_clock_that_jumps_or_a_stamp_that_lies() -> None:
    memory, _a_time, b_time, a, b = two()
    assert await a._try()
    (lease,) = memory.server.objects.values()
    lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert not await b._try()
    b_time.now += 14
    assert not await b._try()
    assert await a._try()  # renewed: b begins to wait anew
    b_time.now += 14
    assert not await b._try()


@in_loop
async def test_validity_counts_from_before_the_request_so_a_slow_server_gives_less() -> None:
    memory, time = Memory(), Clock()
    memory.slow = (time, 4.0)
    a = leader(memory, "a", time)
    assert await a._try()  # two requests of four seconds each
    time.now += 3
    assert not a.leads


@in_loop
async def test_who_was_granted_leadership_too_late_leads_when_it_would_have_ended() -> None:
    memory, time = Memory(), Clock()
    a, b = leader(memory, "a", time), leader(memory, "b", time)
    assert await b._try()
    await b.release()
    memory.slow = (time, 6.0)
    assert not await a._try()  # it was granted, and was over when that was heard of
    memory.slow = None
    assert not await a._try()
    time.now += 14
    assert not await a._try()
    assert not await b._try()
    time.now += 1
    assert await a._try()
    assert not await b._try()


@in_loop
async def test_a_machine_that_slept_does_not_lead_when_it_wakes() -> None:
    _memory, time, _, a, _ = two()
    assert await a._try()
    time.now += 3600
    assert not a.leads
    await asyncio.wait_for(a.keep(), 120)
    with pytest.raises(NotLeadingError):
        a.check()


@in_loop
async def test_a_server_that_is_away_leaves_the_leader_leading_only_as_long_as_it_is_valid() -> (
    None
):
    memory, time, _, a, _ = two()
    assert await a._try()
    memory.down = True
    time.now += 5
    assert await a._try()
    time.now += 6
    assert not await a._try()


@in_loop
async def test_released_leadership_is_taken_at_once() -> None:
    _, _, _, a, b = two()
    assert await a._try()
    assert not await b._try()
    await a.release()
    assert not a.leads
    assert await b._try()
