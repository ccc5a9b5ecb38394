"""Turns what happens into events, and counts it."""

import collections
import dataclasses
import threading
from collections.abc import Callable

from engine import urn as urns
from engine.events import (
    Diagnostic,
    Event,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    Severity,
    StepMetadata,
    StepOp,
)

_PREFIXES: dict[Severity, str] = {"error": "error: ", "warning": "warning: "}


class Reporter:
    """Sends events one at a time; counts steps for the summary."""

    def __init__(self, emit: Callable[[Event], None], *, preview: bool, refresh_only: bool) -> None:
        self._emit = emit
        self._preview = preview
        self._refresh_only = refresh_only
        self._lock = threading.Lock()
        self.changes: collections.Counter[str] = collections.Counter()

    def emit(self, event: Event) -> None:
        with self._lock:
            self._emit(event)

    def say(self, severity: Severity, message: str, urn: str = "") -> None:
        """Send a message to the user; it gets a newline."""
        prefix = _PREFIXES.get(severity, "")
        self.emit(Diagnostic(severity, message + "\n", urn, prefix))

    def started(self, step: StepMetadata) -> None:
        if _reported(step):
            self.emit(ResourcePre(step, self._preview))

    def ended(self, step: StepMetadata, found: StepOp) -> None:
        """A step has ended well; `found` is what a refresh has found out."""
        if not _reported(step):
            return
        refresh = self._refresh_only and step.op == "refresh"
        if self._refresh_only:
            step = dataclasses.replace(step, op=found)
        if step.logical or refresh:
            with self._lock:
                self.changes[step.op] += 1
        # The outputs of a component are there when the program registers them.
        early = self._preview and not urns.is_stack(step.urn)
        if step.state.custom or refresh or step.op in ("delete", "refresh") or early:
            self.emit(ResourceOutputs(step, self._preview))

    def failed(self, step: StepMetadata, message: str) -> None:
        text = f"Preview failed: {message}" if self._preview else message
        self.say("error", text, step.urn if _reported(step) else "")
        if _reported(step) and not self._preview:
            self.emit(ResourceFailed(step))

    def outputs(self, step: StepMetadata) -> None:
        """A component's outputs are registered; a preview tells those of the stack only."""
        if not self._preview or urns.is_stack(step.urn):
            self.emit(ResourceOutputs(step, self._preview))


def _reported(step: StepMetadata) -> bool:
    return not urns.is_default_provider(step.urn)
