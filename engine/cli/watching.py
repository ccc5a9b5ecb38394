"""The person at the terminal during a run: what is shown, and what ^C asks for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from engine.events import Event
from engine.request import Cancellation

FIRST = (
    "^C received; cancelling. Steps that are running will be finished."
    " To terminate immediately, press ^C again: that may leave things half made."
)
SECOND = "^C received twice; terminating at once."


@contextlib.contextmanager
def stoppable(notice: Callable[[str], None]) -> Iterator[Cancellation]:
    """A cancellation that ^C and a termination signal ask for."""
    cancellation = Cancellation()
    texts = iter((FIRST, SECOND))

    def handle(_number: int, _frame: FrameType | None) -> None:
        # The interrupted code may be printing or hold a lock that a listener takes: not from in here.
        threading.Thread(target=ask, args=(next(texts, ""),), daemon=True).start()

    def ask(text: str) -> None:
        if text:
            notice(text)
        cancellation.request()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancellation
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Screen:
    """Hands events on until the display fails; the run goes on without being shown.

    A half-done deployment is worse than one that nobody watched.
    """

    def __init__(self, show: Callable[[Event], None]) -> None:
        self._show = show
        self._fault: Exception | None = None

    def show(self, event: Event) -> None:
        """Show an event if that is still possible."""
        if self._fault is not None:
            return
        try:
            self._show(event)
        except BrokenPipeError as error:
            # Whoever read our output has gone: `up | head`.
            self._fault = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:  # noqa: BLE001 - raised by `close`
            self._fault = error

    def close(self) -> None:
        """Raise what went wrong with the display, now that the run is over."""
        if self._fault is not None and not isinstance(self._fault, BrokenPipeError):
            raise self._fault
