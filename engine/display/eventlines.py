"""`up|refresh|destroy --json`: one engine event per line, in the shape of Pulumi's own."""

import json
import sys
import time
from typing import Any

from engine.display.base import Display, Options
from engine.events import (
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
from engine.state import ResourceState
from engine.values import blinded_ciphertext, values_to_state

_FLAGS = (
    ("custom", "custom"),
    ("delete", "delete"),
    ("protect", "protect"),
    ("retainOnDelete", "retain_on_delete"),
)


class EventLines(Display):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._sequence = 0

    def show(self, event: Event) -> None:
        payload = self._payload(self.prepared(event))
        line = {"sequence": self._sequence, "timestamp": int(time.time()), **payload}
        self._sequence += 1
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
        print(text, flush=True)

    def close(self, *, failed: bool) -> None:
        del failed
        sys.stdout.flush()

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
                    "status": 0,
                    "steps": 0,
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
        form, mask = blinded_ciphertext, self.options.mask.value
        document |= {
            "id": mask(state.id),
            "parent": state.parent,
            "inputs": mask(values_to_state(state.inputs, form)),
            "outputs": mask(values_to_state(state.outputs, form)),
            "provider": state.provider,
        }
        if state.init_errors:
            document["initErrors"] = mask(list(state.init_errors))
        if state.hide_diff:
            document["hideDiffs"] = list(state.hide_diff)
        return document


def _diagnostic(event: Diagnostic) -> dict[str, Any]:
    document: dict[str, Any] = {"urn": event.urn} if event.urn else {}
    if event.prefix:
        document["prefix"] = event.prefix
    document |= {"message": event.message, "color": "never", "severity": event.severity}
    return document


def _summary(event: Summary) -> dict[str, Any]:
    return {
        "maybeCorrupt": False,
        "durationSeconds": event.duration_seconds,
        "resourceChanges": dict(event.changes),
        "PolicyPacks": {},
        "isPreview": event.is_preview,
        "result": event.result,
    }
