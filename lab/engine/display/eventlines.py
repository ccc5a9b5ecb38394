"""`up|refresh|destroy --json`: one engine event per line, in the shape of Pulumi's own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from lab.engine.display.base import Display, Options, is_root
from lab.engine.display.masking import Masker
from lab.engine.events import (
    Cancel,
    Diagnostic,
    Event,
    Prelude,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
    Summary,
)
from lab.engine.state import ResourceState
from lab.engine.usererror import UserError
from lab.engine.values import BlindedCiphertext, Plaintext, SecretForm, values_to_state

_FLAGS = (
    ("custom", "custom"),
    ("delete", "delete"),
    ("protect", "protect"),
    ("taint", "taint"),
    ("external", "external"),
    ("retainOnDelete", "retain_on_delete"),
)


class EventLines(Display):
    """Prints each event when it comes."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._sequence = 0
        # Messages are masked all the same.
        self._mask = Masker(()) if options.show_secrets else options.mask

    def _stream(self) -> TextIO:
        return sys.stdout

    def show(self, event: Event) -> None:
        """See `Display`."""
        payload = self._payload(self.prepared(event))
        line = {"sequence": self._sequence, "timestamp": int(time.time()), **payload}
        self._sequence += 1
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
        print(text, file=self._stream(), flush=True)

    def close(self, *, failed: bool) -> None:
        """Every line was printed already."""
        del failed
        self._stream().flush()

    def _payload(self, event: Event) -> dict[str, Any]:
        if isinstance(event, Prelude):
            return {"preludeEvent": {"config": dict(event.config)}}
        if isinstance(event, Diagnostic):
            return {"diagnosticEvent": _diagnostic(event)}
        if isinstance(event, ResourcePre):
            return {"resourcePreEvent": self._step_event(event.metadata, planning=event.planning)}
        if isinstance(event, ResourceOutputs):
            return {"resOutputsEvent": self._step_event(event.metadata, planning=event.planning)}
        if isinstance(event, ResourceFailed):
            metadata = self._metadata(event.metadata)
            return {
                "resOpFailedEvent": {
                    "metadata": metadata,
                    "status": event.status,
                    "steps": event.steps,
                }
            }
        if isinstance(event, Summary):
            return {"summaryEvent": _summary(event)}
        if isinstance(event, Cancel):
            return {"cancelEvent": {}}
        raise TypeError(f"unknown event {event!r}")

    def _step_event(self, metadata: StepMetadata, *, planning: bool) -> dict[str, Any]:
        document: dict[str, Any] = {"metadata": self._metadata(metadata)}
        return {**document, "planning": True} if planning else document

    def _metadata(self, metadata: StepMetadata) -> dict[str, Any]:
        document: dict[str, Any] = {
            "op": metadata.op,
            "urn": metadata.urn,
            "type": metadata.type,
            "old": self._state(metadata.old),
            "new": self._state(metadata.new),
        }
        if metadata.keys:
            document["keys"] = list(metadata.keys)
        if metadata.diffs:
            document["diffs"] = list(metadata.diffs)
        document["detailedDiff"] = None
        if metadata.detailed_diff is not None:
            document["detailedDiff"] = {
                path: {"diffKind": diff.kind, "inputDiff": diff.input_diff}
                for path, diff in metadata.detailed_diff.items()
            }
        if metadata.logical:
            document["logical"] = True
        return {**document, "provider": metadata.provider}

    def _state(self, state: ResourceState | None) -> dict[str, Any] | None:
        if state is None:
            return None
        document: dict[str, Any] = {"type": state.type, "urn": state.urn}
        document |= {key: True for key, name in _FLAGS if getattr(state, name)}
        hidden = self.options.suppress_outputs and is_root(state.urn)
        form: SecretForm = Plaintext() if self.options.show_secrets else BlindedCiphertext()
        mask = self._mask.value
        document |= {
            "id": mask(state.id),
            "parent": state.parent,
            "inputs": {} if hidden else mask(values_to_state(state.inputs, form)),
            "outputs": {} if hidden else mask(values_to_state(state.outputs, form)),
            "provider": state.provider,
        }
        if state.init_errors:
            document["initErrors"] = mask(list(state.init_errors))
        if state.hide_diff:
            document["hideDiffs"] = list(state.hide_diff)
        return document


class EventLog(EventLines):
    """Writes the events to a file, behind those that it has: a preview comes before its run."""

    def __init__(self, options: Options, path: Path) -> None:
        """Open the file.

        Raises:
            UserError: it cannot be written.
        """
        super().__init__(options)
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"--event-log {path}: {error.strerror}") from error

    def _stream(self) -> TextIO:
        return self._file

    def close(self, *, failed: bool) -> None:
        """See `Display`."""
        del failed
        self._file.close()


def _diagnostic(event: Diagnostic) -> dict[str, Any]:
    document: dict[str, Any] = {"urn": event.urn} if event.urn else {}
    if event.prefix:
        document["prefix"] = event.prefix
    document |= {"message": event.message, "color": "never", "severity": event.severity}
    if event.stream_id:
        document["streamID"] = event.stream_id
    if event.ephemeral:
        document["ephemeral"] = True
    return document


def _summary(event: Summary) -> dict[str, Any]:
    return {
        "maybeCorrupt": event.maybe_corrupt,
        "durationSeconds": event.duration_seconds,
        "resourceChanges": dict(event.changes),
        "PolicyPacks": {},
        "isPreview": event.is_preview,
        "result": event.result,
    }
