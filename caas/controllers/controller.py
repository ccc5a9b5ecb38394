"""What controllers have in common: a queue of names to work on, and events that tell of it."""

import asyncio
import contextlib
import logging
import random
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from caas.cluster import Cluster, ClusterError, stamp
from gpuclusters.core.ports import ObjectKind

T = TypeVar("T")


async def all_of(work: Sequence[Awaitable[T]]) -> list[T]:
    """All of it, even if a part fails; then the first failure."""
    done: list[T] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


async def heard(news: asyncio.Event, seconds: float | None) -> None:
    """Wait for it, but not longer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()


FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0
PRECEDENCE = 10_000
BEGUN_SECONDS = 10.0
"""How long what was begun counts as such where nobody says that it is settled."""

_log = logging.getLogger(__name__)

Step = Callable[[str], Awaitable[float | None]]
"""Looks at one object; answers after how many seconds it wants to look again, None for never."""


class Failed(Exception):  # noqa: N818
    """A step that has said why in the object's status, and is to be repeated later and later."""


@dataclass(eq=False)
class WorkQueue:
    """A name that is added again while it is being looked at is looked at once more afterwards.

    Of many new names only some are begun at once, so that the first are settled before the last are begun.
    """

    step: Step
    workers: int
    begun_at_once: int = 1_000_000
    _held: deque[str] = field(default_factory=deque)
    _begun: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _ready: asyncio.PriorityQueue[tuple[int, str]] = field(default_factory=asyncio.PriorityQueue)
    _turns: int = 0
    _waiting: set[str] = field(default_factory=set)
    _busy: set[str] = field(default_factory=set)
    _again: set[str] = field(default_factory=set)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, *, new: bool = False) -> None:
        """Look at it as soon as a worker is free: what was begun before what is `new`.

        Nothing waits for more than `PRECEDENCE` others that came later.
        """
        if timer := self._timers.pop(name, None):
            timer.cancel()
        if name in self._busy:
            self._again.add(name)
        elif name not in self._waiting:
            self._waiting.add(name)
            if new:
                self._held.append(name)
                self._begin()
            else:
                self._put(name, PRECEDENCE)

    def add_later(self, name: str, seconds: float) -> None:
        """Look at it then, unless it is added before."""
        if timer := self._timers.pop(name, None):
            timer.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self.add, name)

    def settled(self, name: str) -> None:
        """What was begun with it is done, or can go on only when others have done something."""
        if timer := self._begun.pop(name, None):
            timer.cancel()
            self._begin()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.workers):
                    group.create_task(self._work())
        finally:
            for timer in (*self._timers.values(), *self._begun.values()):
                timer.cancel()
            self._timers.clear()
            self._begun.clear()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held and len(self._begun) < self.begun_at_once:
            name = self._held.popleft()
            self._begun[name] = loop.call_later(BEGUN_SECONDS, self.settled, name)
            self._put(name, 0)

    def _put(self, name: str, precedence: int) -> None:
        self._turns += 1
        self._ready.put_nowait((self._turns - precedence, name))

    async def _work(self) -> None:
        while True:
            _, name = await self._ready.get()
            self._waiting.discard(name)
            self._busy.add(name)
            try:
                pause = await self._tried(name)
            finally:
                self._busy.discard(name)
            if name in self._again:
                self._again.discard(name)
                self.add(name)
            elif pause is not None:
                self.add_later(name, pause)

    async def _tried(self, name: str) -> float | None:
        try:
            pause = await self.step(name)
        except Failed as error:
            _log.warning("%s: %s", name, error)
        except Exception:  # noqa: BLE001 - the fault of one must not end the work on all others
            _log.exception("%s: unexpected failure", name)
        else:
            self._failures.pop(name, None)
            return pause
        self.settled(name)
        self._failures[name] += 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** self._failures[name], LONGEST_PAUSE_SECONDS)
        return pause * random.uniform(0.75, 1.25)  # noqa: S311


EventType = Literal["Normal", "Warning"]
EVENT = ObjectKind("events.k8s.io", "v1", "events", "Event", namespaced=True)
CONTROLLER = "gpu-clusters.dev/leases"
QUEUE = 10_000
SENDERS = 8
_CLUSTER_SCOPED_IN = "default"


def event(
    about: Mapping[str, Any],
    controller: str,
    instance: str,
    reason: str,
    action: str,
    note: str,
    kind: EventType = "Normal",
) -> dict[str, Any]:
    """What a controller's instance says about an object: `reason` and `action` in CamelCase, one sentence."""
    metadata = about["metadata"]
    own = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}",
            "namespace": _CLUSTER_SCOPED_IN,
            **own,
        },
        "eventTime": stamp(),
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "action": action,
        "reason": reason,
        "note": note[:1024],
        "type": kind,
        "regarding": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            **own,
        },
    }


class Recorder:
    """Sends events in the background."""

    def __init__(self, cluster: Cluster, instance: str, controller: str = CONTROLLER) -> None:
        self._cluster, self._instance, self._controller = cluster, instance, controller
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE)

    def note(
        self,
        about: Mapping[str, Any],
        reason: str,
        action: str,
        note: str,
        kind: EventType = "Normal",
    ) -> None:
        """Say what happened to an object, as `event`; returns at once."""
        body = event(about, self._controller, self._instance, reason, action, note, kind)
        try:
            self._queue.put_nowait(body)
        except asyncio.QueueFull:
            _log.warning("event dropped: %s %s", about["metadata"]["name"], reason)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._send())

    async def flush(self, seconds: float) -> None:
        """Wait until all is sent, but not longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queue.join()

    async def _send(self) -> None:
        while True:
            body = await self._queue.get()
            try:
                await self._cluster.create(EVENT, body)
            except ClusterError as error:
                _log.warning("event not sent: %s", error)
            finally:
                self._queue.task_done()
