"""Event loops whose clock is the test's, so that no verdict depends on how busy the machine is."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from typing import Any


def run_in(
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """For a test that is a coroutine, run in a loop of its own."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            with asyncio.Runner(loop_factory=loop) as runner:
                runner.run(test(**given))

        return run

    return decorate


in_loop = run_in()


@asynccontextmanager
async def beside(
    work: Coroutine[Any, Any, Any], context: Context | None = None
) -> AsyncIterator[asyncio.Task[Any]]:
    """The work goes on beside the block, and ends with it."""
    task = asyncio.get_running_loop().create_task(work, context=context)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class QuickLoop(asyncio.SelectorEventLoop):
    """Where nothing is to be done but to wait, time is over at once; while anything is done, none passes.

    For what goes on in this thread alone: an answer of another thread or process may come too late for
    a clock that does not wait for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        really = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout:
                self._now += timeout
            return really(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now

    def work(self, seconds: float) -> None:
        """What is being done takes its time."""
        self._now += seconds


class SetLoop(asyncio.SelectorEventLoop):
    """An ordinary one whose clock can be set forward: deadlines that no pause of the machine reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def time(self) -> float:
        return super().time() + getattr(self, "ahead", 0.0)


in_quick_loop, in_set_loop = run_in(QuickLoop), run_in(SetLoop)

_LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


def current() -> Life | None:
    """Whose step this is; None for all that outlives programs."""
    return _LIFE.get()


class Life:
    """One incarnation of a program, which ends at its n-th step.

    A step is what a task does between two awaits.
    """

    def __init__(self, steps: int | None = None) -> None:
        self.steps = 0
        self.dead = asyncio.Event()
        self._last = steps

    def step(self) -> None:
        """A task of this life goes on."""
        if self._last is not None and self.steps >= self._last:
            self.dead.set()
        self.steps += 1

    def alive(self) -> None:
        """What a program sends after its death reaches nobody."""
        if self.dead.is_set():
            raise asyncio.CancelledError

    @asynccontextmanager
    async def of(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
        """Beside the block a program, and all that it starts, has this life."""
        context = Context()
        context.run(_LIFE.set, self)
        async with beside(work, context) as task:
            try:
                yield task
            finally:
                # Nothing that it still does while it is taken down reaches anybody.
                self.dead.set()


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine whose every step is one of its life."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        if life := _LIFE.get():
            life.step()
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        if life := _LIFE.get():
            life.step()
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, None, Any]:
        raise TypeError("this is for tasks")


class LivingLoop(QuickLoop):
    """Counts steps of lives."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(
            lambda loop, work, **options: asyncio.Task(_Counted(work), loop=loop, **options)
        )
