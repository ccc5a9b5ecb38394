"""A stack whose state is on disk, and what was there after each write."""

from __future__ import annotations

import base64
import dataclasses
import functools
from pathlib import Path

import pytest

from engine import secrets
from engine.backend import checkpoints
from engine.backend.filebackend import FileBackend
from engine.backend.layout import StackReference
from engine.backend.store import CheckpointStore
from engine.secrets import SecretsManager
from engine.state import Snapshot
from tests.engine.enginekit import Stack

DEV = StackReference("memory", "dev")


@functools.cache
def manager() -> SecretsManager:
    """Always under the same key: secrets of the tests' programs remember their ciphertexts."""
    salt = b"12345678"
    check = secrets._seal(secrets._derive("p", salt), secrets.CHECK_WORD)
    made = SecretsManager(f"v1:{base64.b64encode(salt).decode()}:{check}", lambda: "p")
    made.verify()
    return made


@dataclasses.dataclass(frozen=True)
class Moment:
    """What was on the disk, and what had been done, when a write of the state had returned."""

    state: bytes
    snapshot: Snapshot
    objects: frozenset[str]

    @property
    def pending(self) -> set[tuple[str, str]]:
        return {(op.type, op.resource.name) for op in self.snapshot.pending_operations}


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

    def save(self, snapshot: Snapshot) -> None:
        self._store.save(snapshot)
        self.moments.append(
            Moment(self.state.read_bytes(), snapshot, frozenset(self.memory.objects))
        )

    @property
    def state(self) -> Path:
        return self.backend.bucket.path(DEV.checkpoint)


@pytest.fixture
def stack(tmp_path: Path, quick: None) -> DiskStack:
    return DiskStack(tmp_path)
