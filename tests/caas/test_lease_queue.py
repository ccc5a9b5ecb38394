"""The queue's own rhythm, and what it takes for free."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from caas.controllers import leases
from caas.controllers.leases import LeaseQueue
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.lease.model import Holder
from gpuclusters.lease.placement import BoardView, Grant
from tests.caas.loops import QuickLoop, beside, in_loop
from tests.caas.pods import contained
from tests.fixtures.tenancies import GPU

LOOK_SECONDS = 0.02
LOOKS = 5


class Timed(LeaseQueue):
    """A queue over so many GPUs that a look at them takes its time."""

    looks = 0

    def turns(self) -> tuple[Grant, ...]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, QuickLoop)
        loop.work(LOOK_SECONDS)
        self.looks += 1
        return super().turns()


def test_a_queue_over_gpus_that_never_stop_changing_leaves_most_of_the_time_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=loop.time))
        recorder: Any = None
        queue = Timed({}, lambda _: None, recorder, GPU)
        async with beside(queue.run()):
            while queue.looks < LOOKS:
                queue.look()
                await asyncio.sleep(0.001)
            assert 0.4 * loop.time() > LOOKS * LOOK_SECONDS

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(story())


MODULES = frozenset(range(1, 9))


class SlowHost:
    """One on which leases are not stored before the test says so."""

    def __init__(self) -> None:
        self.leases: dict[int, Any] = {}
        self.asked: list[Holder] = []
        self.news = asyncio.Event()
        self.store = asyncio.Event()

    def view(self) -> BoardView:
        return BoardView("hgx-01", TABLES[Baseboard.HGX_H100].partitions, MODULES)

    async def grant(self, holder: Holder, _pod: Any) -> bool:
        self.asked.append(holder)
        self.news.set()
        return await self.store.wait()


class Silent:
    """Where events go."""

    def note(self, *_: object, **__: object) -> None:
        pass


def pod(uid: str, size: int) -> dict[str, Any]:
    body = contained("acme", uid, size)
    body["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return body


@in_loop
async def test_gpus_that_are_being_granted_are_not_free_and_no_board_is_cut_by_them() -> None:
    """The second pod comes while the leases of the first are on their way to the API server."""
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
    tenancy = {
        "metadata": {"generation": 1},
        "spec": {"namespace": "acme"},
        "status": {"conditions": [ready]},
    }
    host: Any = SlowHost()
    recorder: Any = Silent()
    queue = LeaseQueue({"hgx-01": host}, lambda _: tenancy, recorder, GPU)
    async with beside(queue.run()), asyncio.timeout(120):
        for uid, size in (("a", 2), ("b", 1), ("c", 4), ("d", 1)):
            host.news.clear()
            queue.observe(pod(uid, size))
            await host.news.wait()
    taken = [module for holder in host.asked for module in holder.gpus]
    assert sorted(taken) == sorted(MODULES)
