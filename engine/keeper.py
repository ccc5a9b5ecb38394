"""Keeps the stored state in step with the deployment: what is begun, what is done.

The state is written whole around each step, as Pulumi does on a file backend.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence

from engine import urn as urns
from engine.state import PendingOperation, ResourceState, Snapshot
from engine.usererror import UserError


class Keeper:
    """Merges what a deployment has done so far with the state it started from.

    What the run has finished comes first, in that order, then what it has not touched, in the old
    order: both are in dependency order, and so is the whole. What is merged are copies that
    nobody changes, so running steps may go on changing their states.
    """

    def __init__(self, base: Snapshot, save: Callable[[Snapshot], None] | None) -> None:
        """Starts from `base`, whose states the deployment works on.

        `save` replaces the stored state and returns when the new one would survive whatever
        happens next; a preview has none.
        """
        self._save = save
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._renames: dict[str, str] = {}
        self._running: dict[int, PendingOperation] = {}
        self._version = 0
        self._written = -1
        self._over = False
        self._start(base)

    def _start(self, base: Snapshot) -> None:
        self._base = base
        self._numbers = {id(state): number for number, state in enumerate(base.resources)}
        # Numbers go by identity, so what has one has to live as long as they do.
        self._alive: list[ResourceState] = []
        self._states = [state.copy() for state in base.resources]
        self._front: list[int] = []
        self._gone: set[int] = set()
        self._kept: set[int] = set()
        # A create that was cut off may have made something: only a refresh can tell. The next
        # run finds out by itself about everything else that was cut off.
        self._inherited = [op for op in base.pending_operations if op.type == "creating"]

    def rebase(self, base: Snapshot) -> None:
        """Go on from another base (after a refresh); nothing may have been recorded yet."""
        with self._lock:
            self._start(base)
            self._version += 1
        self._write()

    def begin(self, operation: str, state: ResourceState) -> None:
        """Write down what is about to be done to a resource."""
        if self._save is None:
            return
        if self._over:
            raise UserError("the run is over: nothing can be begun any more")
        with self._lock:
            self._running[id(state)] = PendingOperation(state.copy(), operation)
            self._version += 1
        try:
            self._write()
        except Exception:
            with self._lock:
                del self._running[id(state)]
                self._version += 1
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
            if operation is not None:
                self._running.pop(id(operation), None)
            self._gone.update(self._numbers[id(s)] for s in done if id(s) in self._numbers)
            self._change(changed)
            if new is not None:
                self._front.append(len(self._states))
                self._number(new, len(self._states))
                self._states.append(_copy(new))
                self._renames.update(dict.fromkeys(new.aliases, new.urn))
            self._version += 1
        if save:
            self._write()

    def keep(self, old: ResourceState, new: ResourceState) -> None:
        """Record that a resource is what it was, without saving that for its own sake."""
        with self._lock:
            number = self._numbers[id(old)]
            self._number(new, number)
            self._front.append(number)
            self._kept.add(number)
            self._version += 1

    def change(self, state: ResourceState) -> None:
        """Record that a state has changed which is recorded already, and save."""
        with self._lock:
            self._change([state])
            self._version += 1
        self._write()

    def _change(self, states: Sequence[ResourceState]) -> None:
        for state in states:
            if id(state) in self._numbers:
                self._states[self._numbers[id(state)]] = _copy(state)

    def flush(self) -> None:
        """Write down what has not been saved for its own sake: the run is over.

        Calls that were given up may still come back; what they say is not recorded any more.
        """
        if self._save is None:
            return
        with self._writing:
            self._over = True
            self._save_once(self._save)

    def snapshot(self) -> Snapshot:
        """The state as of now; the same object stands for what has not changed since before."""
        with self._lock:
            names = self._renames
            done = [n for n in self._front if n not in self._gone]
            rest = [
                number
                for number in range(len(self._base.resources))
                if number not in self._gone and number not in self._kept
            ]
            resources = [self._states[n] for n in (*done, *rest)]
            operations = (*self._running.values(), *self._inherited)
        return dataclasses.replace(
            self._base,
            resources=tuple(_renamed(r, names) for r in resources) if names else tuple(resources),
            pending_operations=operations,
        )

    def _number(self, state: ResourceState, number: int) -> None:
        self._numbers[id(state)] = number
        self._alive.append(state)

    def _write(self) -> None:
        if self._save is None:
            return
        with self._lock:
            wanted = self._version
        # Steps that end while another one is being written down share the next write.
        with self._writing:
            if not self._over and self._written < wanted:
                self._save_once(self._save)

    def _save_once(self, save: Callable[[Snapshot], None]) -> None:
        with self._lock:
            version, snapshot = self._version, self.snapshot()
        if self._written != version:
            save(snapshot)
            self._written = version


def _copy(state: ResourceState) -> ResourceState:
    # Former names are told once, as renames; in the state everything has its present name.
    return dataclasses.replace(state, aliases=()) if state.aliases else state.copy()


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
