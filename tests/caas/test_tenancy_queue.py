"""Names that have to be looked at: none is lost, none is looked at by two at once."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from caas.controllers import controller, tenancy
from caas.controllers.controller import Failed, WorkQueue
from caas.controllers.tenancy import Progress
from tests.caas.loops import beside, in_quick_loop


async def worked(queue: WorkQueue, seconds: float) -> None:
    async with beside(queue.run()):
        await asyncio.sleep(seconds)


def recording(**options: int) -> tuple[WorkQueue, list[str]]:
    """A queue, and what was looked at."""
    seen: list[str] = []

    async def look(name: str) -> None:
        seen.append(name)

    return WorkQueue(look, **options), seen


@in_quick_loop
async def test_what_is_added_many_times_before_its_turn_is_looked_at_once() -> None:
    queue, seen = recording(workers=4)
    for _ in range(100):
        queue.add("a")
        queue.add("b")
    await worked(queue, 0.05)
    assert sorted(seen) == ["a", "b"]


@in_quick_loop
async def test_what_changes_meanwhile_is_looked_at_again_and_never_twice_at_once() -> None:
    seen: list[str] = []
    busy = 0

    async def look(name: str) -> None:
        nonlocal busy
        assert busy == 0
        busy += 1
        seen.append(name)
        if len(seen) == 1:
            queue.add("a")
            queue.add("a")
        await asyncio.sleep(0.02)
        busy -= 1

    queue = WorkQueue(look, workers=4)
    queue.add("a")
    await worked(queue, 0.2)
    assert seen == ["a", "a"]


@in_quick_loop
async def test_a_step_says_when_it_wants_to_look_again_and_an_event_comes_before() -> None:
    times: list[float] = []

    async def look(name: str) -> float | None:
        times.append(asyncio.get_running_loop().time())
        return {1: 0.05, 2: 30.0}.get(len(times))

    queue = WorkQueue(look, workers=2)
    queue.add("a")
    working = asyncio.create_task(worked(queue, 0.4))
    await asyncio.sleep(0.2)
    queue.add("a")
    await working
    assert times == pytest.approx([0, 0.05, 0.2])


@in_quick_loop
async def test_a_failure_is_repeated_later_and_holds_nobody_else_up() -> None:
    seen: Counter[str] = Counter()

    async def look(name: str) -> None:
        seen[name] += 1
        if name == "bad" and seen[name] == 1:
            raise Failed("not now")
        if name == "worse":
            raise RuntimeError("a fault of our own")

    queue = WorkQueue(look, workers=1)
    for name in ("bad", "worse", "good"):
        queue.add(name)
    await worked(queue, 1.2)
    assert seen["good"] == 1
    assert seen["bad"] == 2
    # 0.4 s, then 0.8 s, a quarter more or less.
    assert seen["worse"] in (2, 3)


@in_quick_loop
async def test_what_was_begun_comes_before_what_is_new() -> None:
    queue, seen = recording(workers=1)
    for name in ("new-1", "new-2"):
        queue.add(name, new=True)
    for name in ("begun-1", "begun-2"):
        queue.add(name)
    await worked(queue, 0.1)
    assert seen == ["begun-1", "begun-2", "new-1", "new-2"]


@in_quick_loop
async def test_of_many_new_names_only_some_are_begun_until_these_are_settled() -> None:
    seen: list[str] = []

    async def look(name: str) -> None:
        seen.append(name)
        if name == "new-2":
            raise RuntimeError("what fails is not waited for")

    queue = WorkQueue(look, workers=4, begun_at_once=2)
    for number in range(6):
        queue.add(f"new-{number}", new=True)
    async with beside(queue.run()):
        await asyncio.sleep(0.05)
        assert seen == ["new-0", "new-1"]
        queue.add("new-1")
        await asyncio.sleep(0.05)
        assert seen == ["new-0", "new-1", "new-1"]
        queue.settled("new-0")
        await asyncio.sleep(0.05)
        assert seen[3:] == ["new-2", "new-3"]


@in_quick_loop
async def test_what_is_begun_and_never_settled_holds_others_up_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "BEGUN_SECONDS", 0.1)
    queue, seen = recording(workers=4, begun_at_once=1)
    queue.add("silent", new=True)
    queue.add("next", new=True)
    await worked(queue, 0.3)
    assert seen == ["silent", "next"]


def body(generation: int, uid: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": "acme", "uid": uid, "generation": generation}}


@pytest.mark.parametrize(("now", "seconds"), [(body(1), 3), (body(2), 0), (body(1, uid="2"), 0)])
def test_it_counts_from_the_first_look_at_what_is_asked_for_now(
    monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], seconds: float
) -> None:
    clock = [100.0]
    # Of this module alone: other threads of this process have clocks too.
    monkeypatch.setattr(tenancy, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    progress = Progress(body(1))
    assert progress.waited() == 0
    clock[0] += 3
    progress.body = now
    assert progress.waited() == seconds
