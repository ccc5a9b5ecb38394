"""Between the engine and the display: what goes wrong on the screen must not stop a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from lab.engine.events import Event


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
