"""A stack whose state is on disk, and what its journal held after each write."""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.engine.backend import checkpoints
from lab.engine.backend.filebackend import FileBackend
from lab.engine.backend.layout import StackReference
from lab.engine.backend.store import CheckpointStore
from lab.engine.journal import Entry
from lab.engine.keeper import Recorder
from lab.engine.secrets import PassphraseCrypter, SecretsManager
from lab.engine.state import ResourceState, Snapshot
from tests.engine.enginekit import Stack

DEV = StackReference("memory", "dev")


@functools.cache
def manager() -> SecretsManager:
    salt = b"12345678"
    crypter = PassphraseCrypter("p", salt)
    text = f"v1:{base64.b64encode(salt).decode()}:{crypter.encrypt('pulumi')}"
    return SecretsManager(text, crypter)


@dataclasses.dataclass(frozen=True)
class Moment:
    """What was on the disk, and what had been done, when a write of the journal had returned."""

    state: bytes
    journal: bytes
    snapshot: Snapshot
    objects: frozenset[str]

    @property
    def pending(self) -> set[tuple[str, str]]:
        return {(op.type, op.resource.name) for op in self.snapshot.pending_operations}


class Watched:
    """A recorder that takes down each moment."""

    def __init__(self, stack: DiskStack, store: CheckpointStore) -> None:
        self._stack, self._store = stack, store

    def record(
        self, entries: Sequence[Entry[ResourceState]], snapshot: Callable[[], Snapshot]
    ) -> None:
        self._store.record(entries, snapshot)
        files = self._stack.backend.bucket
        if not files.exists(DEV.journal):
            return  # all that was recorded is in the state
        self._stack.moments.append(
            Moment(
                files.read(DEV.checkpoint),
                files.read(DEV.journal).rstrip(b"\0"),
                snapshot(),
                frozenset(self._stack.memory.objects),
            )
        )

    def fold(
        self, entries: Sequence[Entry[ResourceState]], snapshot: Callable[[], Snapshot]
    ) -> None:
        self._store.fold(entries, snapshot)


class DiskStack(Stack):
    """A stack in a file backend."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.backend = FileBackend(folder)
        self.backend.prepare()
        if not self.backend.exists(DEV):
            self.backend.create(DEV, checkpoints.empty_deployment(manager()))
        self.moments: list[Moment] = []
        self._store = self.store()

    def store(self) -> CheckpointStore:
        return CheckpointStore(self.backend.bucket, DEV, manager(), lambda _: manager())

    def load(self) -> Snapshot:
        self._store = self.store()
        self.stored = self._store.load()
        return self.stored

    def recorder(self) -> Recorder:
        return Watched(self, self._store)

    @property
    def journal(self) -> Path:
        return self.backend.bucket.path(DEV.journal)

    @property
    def state(self) -> Path:
        return self.backend.bucket.path(DEV.checkpoint)

    def put(self, state: bytes, journal: bytes) -> None:
        """Lay files down as a kill would have left them."""
        self.state.write_bytes(state)
        self.journal.write_bytes(journal)
