"""Runs one preview, up, refresh or destroy."""

from __future__ import annotations

from collections.abc import Callable

from lab.engine.events import Event
from lab.engine.request import Cancellation, Outcome, Request, SnapshotStore, StackOutputs


def run(
    request: Request,
    store: SnapshotStore,
    emit: Callable[[Event], None],
    cancel: Cancellation,
    stacks: StackOutputs | None = None,
) -> Outcome:
    """Carry out a request; events go to `emit` one at a time, from several threads.

    `stacks` answers stack references; without it they are refused.
    """
    raise NotImplementedError((request, store, emit, cancel, stacks))
