"""What is asked of a deployment, what it needs around it, and how it ended."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from engine.project import Project
from engine.state import Snapshot


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigValue:
    """One configuration value in plain text; objects are JSON."""

    value: str
    secret: bool = False

    def __repr__(self) -> str:
        return "ConfigValue('[secret]')" if self.secret else f"ConfigValue({self.value!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One `preview`, `up`, `refresh` or `destroy`.

    `config` has full keys (`project:key`), defaults of Pulumi.yaml included. `refresh` is
    `--refresh` of up and preview. `parallel` is the number of steps that may run at a time.
    `debug`: what the program logs for its developers is wanted too.
    """

    project: Project
    stack: str
    operation: Literal["up", "refresh", "destroy"]
    preview: bool
    config: Mapping[str, ConfigValue] = dataclasses.field(default_factory=dict)
    organization: str = "organization"
    parallel: int = 16
    refresh: bool = False
    targets: tuple[str, ...] = ()
    target_dependents: bool = False
    excludes: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    continue_on_error: bool = False
    debug: bool = False
    clear_pending_creates: bool = False


class SnapshotStore(Protocol):
    def load(self) -> Snapshot:
        """The last recorded snapshot; an empty one for a new stack."""

    def save(self, snapshot: Snapshot) -> None:
        """Replace the state; returns when it would survive whatever happens next."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a deployment ended.

    `changes` counts per kind of step. `cancelled`: the user ended it. What went wrong has been told
    in diagnostics.
    """

    ok: bool
    changes: Mapping[str, int]
    cancelled: bool = False


class Cancellation:
    """The user's wish to stop: first gracefully (running steps end), then at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.requested = threading.Event()
        self.terminated = threading.Event()

    def request(self) -> None:
        """Ask to stop; asked again, stop at once."""
        with self._lock:
            (self.terminated if self.requested.is_set() else self.requested).set()
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener on each request; it has to look which of the two events is set."""
        with self._lock:
            self._listeners.append(listener)
