"""Keeps the stored state in step with the deployment: what is begun, what is done."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence

from lab.engine import urn as urns
from lab.engine.state import PendingOperation, ResourceState, Snapshot

CREATING = "creating"


class Keeper:
    """Merges what a deployment has done so far with the state it started from.

    The stored list begins with what this run has finished, in that order, followed by what it has
    not touched, in the old order: both are in dependency order, and so is the result.
    Saved snapshots hold copies, so running steps may go on changing their states.
    """

    def __init__(self, base: Snapshot, save: Callable[[Snapshot], None] | None) -> None:
        """Starts from `base`, whose states the deployment works on. A preview saves nothing."""
        self._base = base
        self._store = save
        self._lock = threading.RLock()
        self._saving = threading.Lock()
        self._new: list[ResourceState] = []
        self._done: set[int] = set()
        self._copies: dict[int, ResourceState] = {id(r): r.copy() for r in base.resources}
        self._operations: dict[int, PendingOperation] = {}
        # A create that was cut off may have made something: only a refresh can tell.
        self._inherited = [op for op in base.pending_operations if op.type == CREATING]
        self._version = 0
        self._saved = 0

    def rebase(self, base: Snapshot) -> None:
        """Go on from another base (after a refresh); nothing may have been recorded yet."""
        with self._lock:
            self._base = base
            self._copies = {id(r): r.copy() for r in base.resources}
            self._inherited = [op for op in base.pending_operations if op.type == CREATING]
        self._save()

    def begin(self, operation: str, state: ResourceState) -> None:
        """Write down what is about to be done to a resource."""
        if self._store is None:
            return
        with self._lock:
            self._operations[id(state)] = PendingOperation(state.copy(), operation)
        self._save()

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
            if operation is not None:
                self._operations.pop(id(operation), None)
            self._done.update(id(state) for state in done)
            self._copies.update((id(state), state.copy()) for state in changed)
            if new is not None:
                self._new.append(new)
                self._copies[id(new)] = new.copy()
        if save:
            self._save()

    def change(self, state: ResourceState) -> None:
        """Record that a state has changed which is recorded already, and save."""
        with self._lock:
            if id(state) in self._copies:
                self._copies[id(state)] = state.copy()
        self._save()

    def flush(self) -> None:
        """Save what was recorded without being saved."""
        self._save()

    def snapshot(self) -> Snapshot:
        """The state as of now."""
        with self._lock:
            rest = [r for r in self._base.resources if id(r) not in self._done]
            resources = [self._copies[id(r)] for r in (*self._new, *rest)]
            operations = (*self._operations.values(), *self._inherited)
            return dataclasses.replace(
                self._base,
                resources=tuple(_rename(resources)),
                pending_operations=operations,
            )

    def _save(self) -> None:
        if self._store is None:
            return
        with self._lock:
            self._version += 1
            wanted = self._version
        # Steps that end while another one is being saved share the next save.
        with self._saving:
            if self._saved >= wanted:
                return
            with self._lock:
                snapshot, version = self.snapshot(), self._version
            self._store(snapshot)
            self._saved = version


def _rename(resources: list[ResourceState]) -> Iterable[ResourceState]:
    """Follow aliases: what still speaks of a resource by its old URN gets the new one."""
    names = {alias: r.urn for r in resources for alias in r.aliases}
    if not names:
        return resources
    return [_renamed(r, names) for r in resources]


def _renamed(state: ResourceState, names: dict[str, str]) -> ResourceState:
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
        provider=provider,
        aliases=(),
    )
