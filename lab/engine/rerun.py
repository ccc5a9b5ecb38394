"""`--run-program`: providers as the program configures them now, before anything is read or deleted.

A state keeps the configuration that a provider had at the last `up`, with a token, say, that has
run out since. So the program runs once with every resource but its providers left alone; what is
asked for follows on the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from lab.engine import urn as urns
from lab.engine.deployment import Deployment
from lab.engine.events import (
    Cancel,
    Diagnostic,
    Event,
    Prelude,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    Summary,
)
from lab.engine.request import Cancellation, Outcome, Request, SnapshotStore, StackOutputs

_NOTHING = "**\0"
"""A target that is no resource."""


def run(
    request: Request,
    store: SnapshotStore,
    emit: Callable[[Event], None],
    cancel: Cancellation,
    stacks: StackOutputs | None = None,
) -> Outcome:
    """Carry out a request with the program's own providers; see `deployment.run`."""
    ahead = _Ahead(emit, program_runs_again=request.operation == "up")
    first = Deployment(_providers_only(request), store, ahead.emit, cancel, stacks)
    outcome = first.run()
    if not outcome.ok:
        ahead.end()
        return outcome
    # A preview has stored nothing: it goes on from what would be there.
    base = first.result() if request.preview else None
    return Deployment(request, store, emit, cancel, stacks, base).run()


def _providers_only(request: Request) -> Request:
    return dataclasses.replace(
        request,
        operation="up",
        refresh=False,
        providers_only=True,
        targets=(_NOTHING,),
        target_dependents=False,
        excludes=(),
        exclude_dependents=False,
        replace=(),
    )


class _Ahead:
    """Of the first run only what concerns providers or went wrong is told."""

    def __init__(self, emit: Callable[[Event], None], *, program_runs_again: bool) -> None:
        self._emit = emit
        self._again = program_runs_again
        self._last: list[Event] = []

    def emit(self, event: Event) -> None:
        """Hand an event on, keep it back, or drop it."""
        if isinstance(event, (Prelude, Summary, Cancel)):
            self._last.append(event)
        elif isinstance(event, Diagnostic):
            if not (self._again and event.severity.startswith("info")):
                self._emit(dataclasses.replace(event, urn=""))
        elif isinstance(event, (ResourcePre, ResourceOutputs, ResourceFailed)):
            metadata = event.metadata
            if urns.is_provider(metadata.urn) and metadata.op != "same":
                self._emit(event)

    def end(self) -> None:
        """It was the only run: tell how it ended."""
        for event in self._last:
            self._emit(event)
