"""Where a run loads and writes down the state of its stack."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.engine.backend import checkpoints, integrity, journalentries, journalfile
from lab.engine.backend.bucket import Bucket
from lab.engine.backend.envelope import CURRENT_VERSION, Checkpoint, to_text
from lab.engine.backend.journalfile import JournalFile, ReservationError
from lab.engine.backend.layout import StackReference
from lab.engine.journal import Base, Begin, End, Entry, Merge, Pending
from lab.engine.secrets import SecretsManager, StableEncrypter
from lab.engine.state import ResourceState, Snapshot, new_manifest
from lab.engine.usererror import UserError
from lab.engine.values import Encrypted


class CheckpointStore:
    """The state of one stack during a run (`SnapshotStore` of the engine).

    What a run does goes to a journal beside the state, so that each step costs as much as it is
    large. The first step marks the state with the journal's id, the end of the run folds one into
    the other; between these two nobody takes the one without the other. The file is replaced
    twice, and both times at once:

    1. a journal that holds nothing yet; 2. the state as it was, naming the journal; 3. steps are
    added to the journal; 4. the state with all steps, naming no journal; 5. no journal.
    """

    def __init__(
        self,
        bucket: Bucket,
        stack: StackReference,
        manager: SecretsManager,
        open_with: Callable[[str], SecretsManager],
    ) -> None:
        self._bucket = bucket
        self._stack = stack
        self._manager = manager
        self._open_with = open_with
        self._encrypter = StableEncrypter(manager.crypter)
        self._mutex = threading.Lock()
        self._start(Checkpoint(CURRENT_VERSION, None), [], [])

    def _start(
        self,
        checkpoint: Checkpoint,
        resources: Sequence[str],
        pending: Sequence[Pending[str]],
    ) -> None:
        self._checkpoint = checkpoint
        self._merge: Merge[str] = Merge(resources, pending)
        self._base = Base(tuple(resources), tuple(self._merge.pending))
        self._journal: JournalFile | None = None
        self._unwritten: list[Entry[str]] = []
        self._short = self._whole = False

    def load(self) -> Snapshot:
        """The last recorded snapshot.

        Raises:
            UserError: the state is damaged, or its secrets cannot be opened.
        """
        with self._mutex:
            return self._load()

    def _load(self) -> Snapshot:
        checkpoint = checkpoints.read(self._bucket, self._stack)
        if checkpoint.features:
            raise UserError(
                f"{self._bucket.path(self._stack.checkpoint)}: the state has features"
                f" {', '.join(checkpoint.features)}, which the embedded engine does not understand;"
                " use the Pulumi CLI for this stack"
            )
        if fault := integrity.fault(checkpoint.deployment or {}):
            raise checkpoints.corrupt(self._bucket, self._stack, f"cannot be worked with: {fault}")
        # A wrong passphrase is better found now than by the first secret of a running program.
        self._manager.verify()
        stored = checkpoints.stored_manager(checkpoint, self._open_with)
        if stored is None or stored.salt == self._manager.salt:
            snapshot = checkpoints.open_snapshot(
                self._bucket, self._stack, checkpoint, self._manager, self._encrypter
            )
            # What does not change is written back as it was read, whatever it means.
            resources = [to_text(document) for document in checkpoint.resources]
            pending = [_as_read(document) for document in checkpoint.pending_operations]
        else:
            # The stack has a new passphrase: what was encrypted under the old one must not stay.
            opened = checkpoints.open_snapshot(self._bucket, self._stack, checkpoint, stored)
            snapshot = checkpoints.detached(opened)
            resources = [self._text(state) for state in snapshot.resources]
            pending = self._operations(snapshot)
        self._start(checkpoint, resources, pending)
        return dataclasses.replace(snapshot, secrets_providers=self._providers())

    def save(self, snapshot: Snapshot) -> None:
        """Replace the whole state; returns when it is on the disk.

        Raises:
            UserError: it cannot be written; the state of before is still there.
        """
        with self._mutex:
            resources = [self._text(state) for state in snapshot.resources]
            deployment = {
                "manifest": snapshot.manifest,
                "metadata": snapshot.metadata,
                **snapshot.extra,
            }
            self._checkpoint = dataclasses.replace(self._checkpoint, deployment=deployment)
            checkpoints.keep_previous(self._bucket, self._stack)
            self._replace(resources, self._operations(snapshot))

    def record(
        self,
        entries: Sequence[Entry[ResourceState]],
        snapshot: Callable[[], Snapshot],  # noqa: ARG002 (entries are enough)
    ) -> None:
        """Add entries to the journal.

        Raises:
            UserError: they cannot be written; the next call tries again.
        """
        with self._mutex:
            self._take(entries)
            if not self._unwritten and not self._short:
                return
            only = self._unwritten[0] if len(self._unwritten) == 1 else None
            if self._journal is None and isinstance(only, Base):
                # Another state to start from is best put in place of the old one.
                self._replace_all()
                return
            if self._journal is None:
                self._journal = self._begin()
            self._append(self._journal)

    def fold(
        self,
        entries: Sequence[Entry[ResourceState]],
        snapshot: Callable[[], Snapshot],  # noqa: ARG002 (entries are enough)
    ) -> None:
        """Replace the state by what the run has come to; the journal is over.

        Raises:
            UserError: it cannot be written; what was recorded before is in the journal.
        """
        with self._mutex:
            self._take(entries)
            if self._whole and not self._unwritten:
                return
            try:
                self._replace_all()
            except UserError:
                if self._journal is not None:
                    # The journal may have room where a whole state has none.
                    with contextlib.suppress(UserError):
                        self._append(self._journal)
                raise

    def _replace_all(self) -> None:
        merge = self._merge
        resources = journalentries.renamed_texts(merge.resources, merge.renames)
        if self._journal is None and not self._checkpoint.journal:
            checkpoints.keep_previous(self._bucket, self._stack)
        self._replace(resources, merge.pending)
        if self._journal is not None:
            self._journal.close()
        journalfile.remove(self._bucket.path(self._stack.journal))
        self._start(self._checkpoint, resources, merge.pending)
        self._whole = True

    def _take(self, entries: Sequence[Entry[ResourceState]]) -> None:
        for entry in entries:
            text = self._with_texts(entry)
            self._merge.apply(text)
            self._unwritten.append(text)

    def _append(self, journal: JournalFile) -> None:
        texts = [journalentries.encode(entry) for entry in self._unwritten]
        # Whoever could not begin for want of room may not begin the next time for lack of news.
        begins = self._short or any(isinstance(entry, Begin) for entry in self._unwritten)
        try:
            journal.append(texts, begins=begins, running=self._merge.running)
        except ReservationError:
            self._short = True
            self._unwritten.clear()
            raise
        self._short = False
        self._unwritten.clear()

    def _begin(self) -> JournalFile:
        base = self._base
        if self._checkpoint.journal:
            # An earlier run was cut off. Its journal is about to be replaced.
            self._replace(base.resources, base.pending)
        id_ = str(uuid.uuid4())
        path = self._bucket.path(self._stack.journal)
        journal = JournalFile(path, journalentries.header(str(self._stack), id_))
        try:
            checkpoints.keep_previous(self._bucket, self._stack)
            self._replace(base.resources, base.pending, journal=id_)
        except UserError:
            # It stays: who can tell whether the state names it by now? If not, nobody reads it.
            journal.close()
            raise
        return journal

    # -- texts -----------------------------------------------------------------------

    def _replace(
        self, resources: Sequence[str], pending: Sequence[Pending[str]], journal: str = ""
    ) -> None:
        checkpoint = dataclasses.replace(self._checkpoint, journal=journal)
        rest = {"metadata": {}, **(checkpoint.deployment or {})}
        for name in ("resources", "pending_operations", "secrets_providers"):
            rest.pop(name, None)
        parts = [
            f'"manifest":{to_text(new_manifest(rest.pop("manifest", None)))}',
            f'"secrets_providers":{to_text(self._providers())}',
        ]
        if resources:
            parts.append(f'"resources":[{",".join(resources)}]')
        if pending:
            operations = ",".join(map(journalentries.pending_text, pending))
            parts.append(f'"pending_operations":[{operations}]')
        parts += [f"{to_text(k)}:{to_text(v)}" for k, v in rest.items()]
        checkpoints.replace(self._bucket, self._stack, checkpoint, "{" + ",".join(parts) + "}")
        self._checkpoint = checkpoint

    def _providers(self) -> dict[str, Any]:
        """How secrets are encrypted; what else the state says of that is kept."""
        stored = self._checkpoint.secrets_provider or {}
        ours = self._manager.state()
        state = {**_object(stored.get("state")), **_object(ours["state"])}
        return {**stored, **ours, "state": state}

    def _with_texts(self, entry: Entry[ResourceState]) -> Entry[str]:
        if isinstance(entry, Begin):
            return Begin(entry.operation, self._operation(entry.pending))
        if isinstance(entry, Base):
            return Base(
                tuple(map(self._text, entry.resources)),
                tuple(map(self._operation, entry.pending)),
            )
        return End(
            operation=entry.operation,
            removed=entry.removed,
            changed={number: self._text(state) for number, state in entry.changed.items()},
            new=None if entry.new is None else self._text(entry.new),
            kept=entry.kept,
            renames=entry.renames,
        )

    def _text(self, state: ResourceState) -> str:
        return to_text(state.to_json(Encrypted(self._encrypter.writer(state.urn))))

    def _operation(self, operation: Pending[ResourceState]) -> Pending[str]:
        return Pending(operation.type, self._text(operation.resource), operation.extra)

    def _operations(self, snapshot: Snapshot) -> list[Pending[str]]:
        return [
            Pending(op.type, self._text(op.resource), op.extra)
            for op in snapshot.pending_operations
        ]


def _as_read(document: Mapping[str, Any]) -> Pending[str]:
    operation = journalentries.pending(document)
    return Pending(operation.type, to_text(operation.resource), operation.extra)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
