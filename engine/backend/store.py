"""Where a run loads and writes down the state of its stack."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from engine.backend import checkpoints, integrity
from engine.backend.bucket import Bucket
from engine.backend.envelope import CURRENT_VERSION, Checkpoint, to_text
from engine.backend.layout import StackReference
from engine.secrets import SecretsManager
from engine.state import PendingOperation, ResourceState, Snapshot, new_manifest
from engine.usererror import UserError
from engine.values import encrypted

_REFUSED = ("external", "refreshBeforeUpdate", "resourceHooks", "taint", "viewOf")
"""What a resource may say that would ask for something else than this engine does."""


class CheckpointStore:
    """The state of one stack during a run (`SnapshotStore` of the engine)."""

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
        self._mutex = threading.Lock()
        self._start(Checkpoint(CURRENT_VERSION, None))

    def _start(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        # What does not change is written back as it was read, whatever it means.
        self._as_read: dict[str, str] = {}
        self._texts: dict[int, tuple[ResourceState, str]] = {}

    def load(self) -> Snapshot:
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
        for resource in checkpoint.resources:
            for field in _REFUSED:
                if resource.get(field):
                    raise UserError(
                        f"{self._bucket.path(self._stack.checkpoint)}: resource {resource.get('urn')} has"
                        f" {field!r}, which the embedded engine does not follow; use the Pulumi CLI for"
                        " this stack"
                    )
        if fault := integrity.fault(checkpoint.deployment or {}):
            raise checkpoints.corrupt(self._bucket, self._stack, f"cannot be worked with: {fault}")
        # A wrong passphrase is better found now than by the first secret of a running program.
        self._manager.verify()
        stored = checkpoints.stored_manager(checkpoint, self._open_with)
        if stored is None or stored.salt == self._manager.salt:
            snapshot = checkpoints.open_snapshot(
                self._bucket, self._stack, checkpoint, self._manager
            )
            self._start(checkpoint)
            operations = (op.resource for op in snapshot.pending_operations)
            documents = (*checkpoint.resources, *_operands(checkpoint))
            for state, document in zip((*snapshot.resources, *operations), documents, strict=True):
                self._as_read[self._text(state)] = to_text(document)
        else:
            # The stack has a new passphrase: what was encrypted under the old one must not stay.
            opened = checkpoints.open_snapshot(self._bucket, self._stack, checkpoint, stored)
            snapshot = checkpoints.detached(opened)
            self._start(checkpoint)
        return dataclasses.replace(snapshot, secrets_providers=self._providers())

    def save(self, snapshot: Snapshot) -> None:
        """Replace the whole state; returns when it is on the disk.

        States of resources must not change after they were saved: each is put into words once.
        The state of before stays as ``.bak``.
        """
        with self._mutex:
            self._texts = {id(state): (state, self._once(state)) for state in snapshot.resources}
            parts = [
                f'"manifest":{to_text(new_manifest(snapshot.manifest))}',
                f'"secrets_providers":{to_text(self._providers())}',
            ]
            if snapshot.resources:
                texts = ",".join(self._texts[id(state)][1] for state in snapshot.resources)
                parts.append(f'"resources":[{texts}]')
            if snapshot.pending_operations:
                texts = ",".join(map(self._operation, snapshot.pending_operations))
                parts.append(f'"pending_operations":[{texts}]')
            rest = {"metadata": snapshot.metadata, **snapshot.extra}
            parts += [f"{to_text(k)}:{to_text(v)}" for k, v in rest.items()]
            checkpoints.keep_previous(self._bucket, self._stack)
            text = "{" + ",".join(parts) + "}"
            checkpoints.replace(self._bucket, self._stack, self._checkpoint, text)

    def _providers(self) -> dict[str, Any]:
        """How secrets are encrypted; what else the state says of that is kept."""
        stored = self._checkpoint.secrets_provider or {}
        ours = self._manager.state()
        state = {**_object(stored.get("state")), **_object(ours["state"])}
        return {**stored, **ours, "state": state}

    def _once(self, state: ResourceState) -> str:
        known = self._texts.get(id(state))
        return self._text(state) if known is None or known[0] is not state else known[1]

    def _text(self, state: ResourceState) -> str:
        text = to_text(state.to_json(encrypted(self._manager.encrypt)))
        return self._as_read.get(text, text)

    def _operation(self, operation: PendingOperation) -> str:
        extra = "".join(f",{to_text(k)}:{to_text(v)}" for k, v in operation.extra.items())
        resource = self._text(operation.resource)
        return f'{{"resource":{resource},"type":{to_text(operation.type)}{extra}}}'


def _operands(checkpoint: Checkpoint) -> list[Mapping[str, Any]]:
    return [operation["resource"] for operation in checkpoint.pending_operations]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
