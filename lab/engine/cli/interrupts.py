"""Ctrl-C: once ends gracefully, twice at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from lab.engine.request import Cancellation

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
