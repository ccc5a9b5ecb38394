"""Keeps the stored state in step with the deployment: what is begun, what is done."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from lab.engine import urn as urns
from lab.engine.journal import Base, Begin, End, Entry, Merge, Pending
from lab.engine.state import PendingOperation, ResourceState, Snapshot
from lab.engine.usererror import UserError


class Recorder(Protocol):
    """Where a deployment writes down what it does."""

    def record(
        self, entries: Sequence[Entry[ResourceState]], snapshot: Callable[[], Snapshot]
    ) -> None:
        """Write down what happened; returns when it would survive whatever happens next.

        Entries are taken over even if this raises: the next call writes them too. `snapshot`
        gives the whole state, all entries included.
        """

    def fold(
        self, entries: Sequence[Entry[ResourceState]], snapshot: Callable[[], Snapshot]
    ) -> None:
        """Write down the last entries, and put everything into the state itself."""


class Rewriting:
    """Writes the whole state each time: what Pulumi does on a file backend without a journal."""

    def __init__(self, save: Callable[[Snapshot], None]) -> None:
        self._save = save

    def record(
        self,
        entries: Sequence[Entry[ResourceState]],  # noqa: ARG002 (the snapshot has them)
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """See `Recorder`."""
        self._save(snapshot())

    fold = record


class Keeper:
    """Merges what a deployment has done so far with the state it started from.

    Entries and snapshots hold copies, so running steps may go on changing their states.
    """

    def __init__(self, base: Snapshot, recorder: Recorder | None) -> None:
        """Starts from `base`, whose states the deployment works on. A preview records nothing."""
        self._recorder = recorder
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._operations: dict[int, int] = {}
        self._begun = 0
        self._waiting: list[Entry[ResourceState]] = []
        self._version = 0
        self._written = 0
        self._over = False
        self._start(base)
        self._merge = Merge(*_copied(base))

    def _start(self, base: Snapshot) -> None:
        self._base = base
        self._numbers = {id(state): number for number, state in enumerate(base.resources)}
        self._next = len(base.resources)
        # Numbers go by identity, so what has one has to live as long as they do.
        self._alive: list[ResourceState] = []

    def rebase(self, base: Snapshot) -> None:
        """Go on from another base (after a refresh); nothing may have been recorded yet."""
        with self._lock:
            self._start(base)
            self._note(Base(*_copied(base)))
        self._write()

    def begin(self, operation: str, state: ResourceState) -> None:
        """Write down what is about to be done to a resource.

        Raises:
            UserError: it cannot be written down, so it must not be done.
        """
        if self._recorder is None:
            return
        if self._over:
            raise UserError("the run is over: nothing can be begun any more")
        with self._lock:
            self._begun += 1
            self._operations[id(state)] = self._begun
            self._note(Begin(self._begun, Pending(operation, state.copy())))
        try:
            self._write()
        except Exception:
            with self._lock:
                self._note(End(operation=self._operations.pop(id(state))))
            raise

    def end(
        self,
        *,
        operation: ResourceState | None = None,
        done: Sequence[ResourceState] = (),
        changed: Sequence[ResourceState] = (),
        new: ResourceState | None = None,
        save: bool = True,
    ) -> None:
        """Record the end of a step.

        `operation` is the state that `begin` was called with, `done` are old states that are no
        longer there, `changed` old states with a new mark, `new` is what there is now.
        """
        with self._lock:
            numbers = self._numbers
            self._note(
                End(
                    operation=None
                    if operation is None
                    else self._operations.pop(id(operation), None),
                    removed=tuple(numbers[id(s)] for s in done if id(s) in numbers),
                    changed={numbers[id(s)]: _copy(s) for s in changed if id(s) in numbers},
                    new=None if new is None else _copy(new),
                    renames={} if new is None else dict.fromkeys(new.aliases, new.urn),
                )
            )
            if new is not None:
                self._number(new, self._next)
                self._next += 1
        if save:
            self._write()

    def keep(self, old: ResourceState, new: ResourceState) -> None:
        """Record that a resource is what it was, without saving that for its own sake."""
        with self._lock:
            number = self._numbers[id(old)]
            self._number(new, number)
            self._note(End(kept=number))

    def change(self, state: ResourceState) -> None:
        """Record that a state has changed which is recorded already, and save."""
        with self._lock:
            number = self._numbers.get(id(state))
            if number is not None:
                self._note(End(changed={number: _copy(state)}))
        self._write()

    def flush(self) -> None:
        """Put everything that was recorded into the stored state itself: the run is over.

        Calls that were given up may still come back; what they say is not recorded any more.
        """
        if self._recorder is None:
            return
        with self._writing:
            self._over = True
            entries, version = self._take()
            self._recorder.fold(entries, self.snapshot)
            self._written = version

    def snapshot(self) -> Snapshot:
        """The state as of now."""
        with self._lock:
            names = self._merge.renames
            resources = self._merge.resources
            operations = self._merge.pending
        return dataclasses.replace(
            self._base,
            resources=tuple(_renamed(r, names) for r in resources) if names else tuple(resources),
            pending_operations=tuple(
                PendingOperation(op.resource, op.type, op.extra) for op in operations
            ),
        )

    def _number(self, state: ResourceState, number: int) -> None:
        self._numbers[id(state)] = number
        self._alive.append(state)

    def _note(self, entry: Entry[ResourceState]) -> None:
        self._merge.apply(entry)
        self._version += 1
        if self._recorder is not None:
            self._waiting.append(entry)

    def _take(self) -> tuple[list[Entry[ResourceState]], int]:
        with self._lock:
            entries, self._waiting = self._waiting, []
            return entries, self._version

    def _write(self) -> None:
        if self._recorder is None:
            return
        with self._lock:
            wanted = self._version
        # Steps that end while another one is being written down share the next write.
        with self._writing:
            if self._over or self._written >= wanted:
                return
            entries, version = self._take()
            self._recorder.record(entries, self.snapshot)
            self._written = version


def _copy(state: ResourceState) -> ResourceState:
    # Former names are told once, as renames; in the state everything has its present name.
    return dataclasses.replace(state, aliases=()) if state.aliases else state.copy()


def _copied(
    base: Snapshot,
) -> tuple[tuple[ResourceState, ...], tuple[Pending[ResourceState], ...]]:
    pending = (Pending(op.type, op.resource, op.extra) for op in base.pending_operations)
    return tuple(state.copy() for state in base.resources), tuple(pending)


def _renamed(state: ResourceState, names: dict[str, str]) -> ResourceState:
    """What still speaks of a resource by its former URN gets the present one."""

    def new(urn: str) -> str:
        return names.get(urn, urn)

    provider = state.provider
    if provider:
        urn, id_ = urns.split_reference(provider)
        provider = f"{new(urn)}::{id_}"
    return dataclasses.replace(
        state,
        parent=new(state.parent),
        dependencies=tuple(map(new, state.dependencies)),
        property_dependencies={
            key: tuple(map(new, value)) for key, value in state.property_dependencies.items()
        },
        deleted_with=new(state.deleted_with),
        replace_with=tuple(map(new, state.replace_with)),
        provider=provider,
    )
