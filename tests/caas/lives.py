"""Lives of a program that end at a given step, and a loop that counts the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any

from tests.caas.loops import QuickLoop

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

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a program, and all that it starts, in this life."""
        context = Context()
        context.run(_LIFE.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)


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
            lambda loop, work, **options: asyncio.Task(
                _Counted(work),
                loop=loop,
                **options,
            )
        )
