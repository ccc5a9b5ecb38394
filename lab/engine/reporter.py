"""Turns what happens into events, and counts it."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.engine import urn as urns
from lab.engine.events import (
    Diagnostic,
    Event,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    Severity,
    StepMetadata,
    StepOp,
)

if TYPE_CHECKING:
    from lab.engine.step import Step

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
        """Send any event."""
        with self._lock:
            self._emit(event)

    def say(
        self,
        severity: Severity,
        message: str,
        urn: str = "",
        *,
        ephemeral: bool = False,
        stream_id: int = 0,
    ) -> None:
        """Send a message to the user; it gets a newline."""
        prefix = _PREFIXES.get(severity, "")
        self.emit(Diagnostic(severity, message + "\n", urn, prefix, ephemeral, stream_id))

    def started(self, step: Step) -> None:
        """A step is about to run."""
        if _reported(step):
            self.emit(ResourcePre(_metadata(step), self._preview))

    def ended(self, step: Step) -> None:
        """A step has ended well."""
        if not _reported(step):
            return
        op = step.result_op() if self._refresh_only else step.op
        if step.counts() or (self._refresh_only and step.op == "refresh"):
            with self._lock:
                self.changes[op] += 1
        state = step.state
        # The outputs of a component are there when the program registers them.
        early = self._preview and not urns.is_stack(state.urn)
        if state.custom or step.op in ("delete", "refresh") or early:
            self.emit(ResourceOutputs(_metadata(step, op), self._preview))

    def failed(self, step: Step, message: str) -> None:
        """A step has failed."""
        text = f"Preview failed: {message}" if self._preview else message
        self.say("error", text, step.state.urn if _reported(step) else "")
        if _reported(step) and not self._preview:
            self.emit(ResourceFailed(_metadata(step)))

    def outputs(self, step: Step) -> None:
        """A component's outputs are registered; a preview tells those of the stack only."""
        if not self._preview or urns.is_stack(step.state.urn):
            self.emit(ResourceOutputs(_metadata(step), self._preview))


def _reported(step: Step) -> bool:
    return not urns.is_default_provider(step.state.urn)


def _metadata(step: Step, op: StepOp | None = None) -> StepMetadata:
    state = step.state
    return StepMetadata(
        op=op or step.op,
        urn=state.urn,
        type=state.type,
        provider=state.provider,
        old=step.old.copy() if step.old else None,
        new=step.new.copy() if step.new else None,
        keys=step.keys,
        diffs=step.diffs,
        detailed_diff=step.detailed,
        logical=step.logical,
    )
