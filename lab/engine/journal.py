"""What a run does to a state, entry by entry, and the state that the entries give.

The idea is that of Pulumi's own journaling (`JournalEntry` in `sdk/go/common/apitype`): an
operation is begun and ended, and each entry says what it alone changes. Resources are spoken of
by number: first those that the run started from, in their order, then new ones as they come.
Nothing here knows how a resource looks: the engine merges states, the backend merges JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

CREATING = "creating"
T = TypeVar("T")
S = TypeVar("S")


class JournalError(ValueError):
    """Entries that do not belong together."""


@dataclass(frozen=True, slots=True)
class Pending(Generic[T]):
    """Something that was begun and not ended; `extra` is what this engine does not know of it."""

    type: str
    resource: T
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begin(Generic[T]):
    """Something is about to be done to a resource (`creating`, `updating`, ...)."""

    operation: int
    pending: Pending[T]


@dataclass(frozen=True, slots=True)
class End(Generic[T]):
    """What is different afterwards.

    `operation` was begun before, if it was worth that. `removed` are numbers of resources that
    are no longer there, `changed` what others are now. `new` is a resource that stands behind all
    that this run has finished so far; `kept` is the number of an old one that goes there as it is.
    `renames` maps former URNs to present ones.
    """

    operation: int | None = None
    removed: tuple[int, ...] = ()
    changed: Mapping[int, T] = field(default_factory=dict)
    new: T | None = None
    kept: int | None = None
    renames: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Base(Generic[T]):
    """The run goes on from another state, as after a refresh; numbers begin again."""

    resources: tuple[T, ...]
    pending: tuple[Pending[T], ...] = ()


Entry: TypeAlias = Begin[T] | End[T] | Base[T]


class Merge(Generic[T]):
    """The state that a run has come to.

    What the run has finished comes first, in that order, then what it has not touched, in the old
    order: both are in dependency order, and so is the whole.
    """

    def __init__(self, resources: Iterable[T], pending: Iterable[Pending[T]] = ()) -> None:
        self.renames: dict[str, str] = {}
        self._start(resources, pending)

    def _start(self, resources: Iterable[T], pending: Iterable[Pending[T]]) -> None:
        self._states = list(resources)
        self._count = len(self._states)
        self._front: list[int] = []
        self._finished: set[int] = set()
        self._removed: set[int] = set()
        self._running: dict[int, Pending[T]] = {}
        # A create that was cut off may have made something: only a refresh can tell. The next
        # run finds out by itself about everything else that was cut off.
        self._inherited = [operation for operation in pending if operation.type == CREATING]

    def apply(self, entry: Entry[T]) -> None:
        """Take an entry in.

        Raises:
            JournalError: it speaks of something that is not there.
        """
        if isinstance(entry, Base):
            self._start(entry.resources, entry.pending)
        elif isinstance(entry, Begin):
            self._running[entry.operation] = entry.pending
        else:
            self._end(entry)

    def _end(self, entry: End[T]) -> None:
        kept = () if entry.kept is None else (entry.kept,)
        for number in (*entry.removed, *entry.changed, *kept):
            if not 0 <= number < len(self._states):
                raise JournalError(f"there is no resource number {number}")
        if entry.operation is not None and self._running.pop(entry.operation, None) is None:
            raise JournalError(f"operation {entry.operation} ends without having begun")
        self._removed.update(entry.removed)
        for number, state in entry.changed.items():
            self._states[number] = state
        if entry.new is not None:
            self._states.append(entry.new)
            self._front.append(len(self._states) - 1)
        self._front += kept
        self._finished.update(kept)
        self.renames.update(entry.renames)

    @property
    def resources(self) -> list[T]:
        """All resources, in order."""
        gone = self._removed
        done = [n for n in self._front if n not in gone]
        rest = [n for n in range(self._count) if n not in gone and n not in self._finished]
        return [self._states[n] for n in (*done, *rest)]

    @property
    def pending(self) -> list[Pending[T]]:
        """What was begun and not ended, in this run and, for creates, in earlier ones."""
        return [*self._running.values(), *self._inherited]

    @property
    def running(self) -> int:
        """How many operations are under way."""
        return len(self._running)
