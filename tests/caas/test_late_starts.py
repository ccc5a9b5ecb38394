"""A pod that has its GPUs and does not start is ended, once, when its time is over."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import pytest

from caas import metrics
from caas.cluster import Cluster, ClusterError, ConflictError
from caas.controllers.controller import Recorder
from caas.controllers.lease_pods import AGAIN_SECONDS, LateStarts
from tests.caas.loops import beside, in_quick_loop
from tests.caas.pods import DAY, going

LIMIT = 1000.0


class World:
    """The pods' cluster, and both clocks."""

    def __init__(self) -> None:
        self.now = 50.0
        self.day = DAY
        self.deleted: list[tuple[str, str, str]] = []
        self.told: list[str] = []
        self.answer: Exception | None = None
        self.leads = True
        self.late = LateStarts(
            cast(Cluster, self),
            cast(Recorder, self),
            LIMIT,
            fence=self._fence,
            clock=lambda: self.now,
            wall=lambda: self.day,
        )

    async def delete(self, _kind: Any, name: str, namespace: str, *, uid: str) -> None:
        self.deleted.append((namespace, name, uid))
        if self.answer is not None:
            raise self.answer

    def note(self, about: Mapping[str, Any], reason: str, _action: str, note: str, _: str) -> None:
        self.told.append(f"{about['metadata']['name']}: {reason}: {note}")

    def _fence(self) -> None:
        if not self.leads:
            raise RuntimeError("does not lead")

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.day += seconds
        asyncio.run(self.late.end_late())


@pytest.fixture
def world() -> World:
    return World()


pod = partial(going, "PodScheduled")
"""One on its way."""


def test_it_is_ended_when_its_time_is_over_and_the_event_says_why(world: World) -> None:
    before = metrics.CONTROLLERS.get_sample_value("gpu_clusters_late_starts_total") or 0
    world.late.observe(pod())
    world.passes(LIMIT - 1)
    world.late.observe(pod(state="waiting"))  # what happens meanwhile gives no new time
    assert world.deleted == []
    world.passes(1)
    assert world.deleted == [("tenant-acme", "c", "u")]
    (told,) = world.told
    assert told.startswith("c: StartTimedOut: its container did not start within 1000 s")
    assert metrics.CONTROLLERS.get_sample_value("gpu_clusters_late_starts_total") == before + 1
    world.late.observe(pod(ending=True))
    world.passes(10 * LIMIT)
    assert len(world.deleted) == 1


@pytest.mark.parametrize(
    "body",
    [
        pod(state="running"),
        pod(state="terminated", phase="Running"),
        pod(phase="Failed"),
        pod(ending=True),
        going(gated=True, leased=False),
        pod(leased=False),
        going(),
        None,
    ],
    ids=["runs", "ran", "failed", "is ending", "waits", "has no GPUs", "has no node", "is gone"],
)
def test_a_pod_that_is_not_starting_is_let_be(world: World, body: dict[str, Any] | None) -> None:
    world.late.observe(pod())
    world.late.observe(body) if body else world.late.forget("u")
    world.passes(10 * LIMIT)
    assert world.deleted == []


@pytest.mark.parametrize(
    ("seen_after", "left"),
    [(0.0, 1000.0), (400.0, 600.0), (990.0, 250.0), (1e6, 250.0), (-1e6, 1000.0)],
    ids=["at once", "later", "late", "long after", "the clock was set back"],
)
def test_after_a_restart_it_gets_what_is_left_but_at_least_a_quarter(
    world: World, seen_after: float, left: float
) -> None:
    world.day = DAY + seen_after
    world.late.observe(pod())
    world.passes(left - 1)
    assert world.deleted == []
    world.passes(1)
    assert len(world.deleted) == 1


def test_a_clock_that_is_set_ends_nothing_nor_does_who_does_not_lead(world: World) -> None:
    world.late.observe(pod())
    world.day += 1e6
    world.passes(1)
    assert world.deleted == []
    world.leads = False
    with pytest.raises(RuntimeError):
        world.passes(2 * LIMIT)
    assert world.deleted == []


def test_while_the_cluster_does_not_answer_it_is_tried_again_and_told_once(world: World) -> None:
    world.answer = ClusterError("no answer", reason="Unreachable")
    world.late.observe(pod())
    world.passes(LIMIT)
    world.passes(AGAIN_SECONDS - 1)
    assert len(world.deleted) == 1
    world.passes(1)
    assert len(world.deleted) == 2
    assert len(world.told) == 1


def test_another_pod_of_the_same_name_is_not_ended(world: World) -> None:
    world.answer = ConflictError("another one", status=409, reason="Conflict")
    world.late.observe(pod())
    world.passes(LIMIT)
    world.passes(10 * LIMIT)
    assert len(world.deleted) == 1


@in_quick_loop
async def test_the_work_wakes_by_itself_when_the_time_is_over() -> None:
    world = World()
    late = LateStarts(
        cast(Cluster, world), cast(Recorder, world), LIMIT, clock=loop_time, wall=lambda: DAY
    )
    async with beside(late.run()):
        await asyncio.sleep(0)
        late.observe(pod())
        await asyncio.sleep(LIMIT + 1)
    assert world.deleted == [("tenant-acme", "c", "u")]


def loop_time() -> float:
    return asyncio.get_running_loop().time()
