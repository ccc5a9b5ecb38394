"""Event loops whose clock is the test's, so that no verdict depends on how busy the machine is."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, run in a loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


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
