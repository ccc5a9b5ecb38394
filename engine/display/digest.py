"""`preview --json`: one document with all steps, in the shape of Pulumi's own."""

import json
import sys
import time
from typing import Any

from engine.display.base import Display, Options, is_root
from engine.display.steps import is_replacement_part, protection_changes
from engine.events import (
    Diagnostic,
    Event,
    Prelude,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
    Summary,
)
from engine.state import ResourceState
from engine.values import blinded


class Digest(Display):
    """Collects what a preview tells and prints it at the end."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._start = time.monotonic()
        self._steps: list[dict[str, Any]] = []
        self._first: dict[str, StepMetadata] = {}
        self._diagnostics: list[dict[str, Any]] = []
        self._document: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}

    def show(self, event: Event) -> None:
        event = self.prepared(event)
        if isinstance(event, Prelude):
            if event.config:
                self._document["config"] = dict(event.config)
        elif isinstance(event, Diagnostic):
            self._diagnose(event)
        elif isinstance(event, ResourcePre):
            if self._shown(event.metadata):
                self._first[event.metadata.urn] = event.metadata
                self._steps.append(self._step(event.metadata))
        elif isinstance(event, ResourceOutputs):
            self._refreshed(event.metadata)
        elif isinstance(event, Summary):
            self._summary = {"changeSummary": dict(event.changes)} if event.changes else {}

    def close(self, *, failed: bool) -> None:
        if failed:
            return
        document = dict(self._document)
        if self._steps:
            document["steps"] = self._steps
        if self._diagnostics:
            document["diagnostics"] = self._diagnostics
        document["duration"] = int((time.monotonic() - self._start) * 1e9)
        document |= self._summary
        json.dump(document, sys.stdout, indent=4, ensure_ascii=False)
        print(flush=True)

    def _diagnose(self, event: Diagnostic) -> None:
        if event.severity == "debug":
            return
        diagnostic = {"urn": event.urn} if event.urn else {}
        diagnostic |= {"message": event.prefix + event.message, "severity": event.severity}
        self._diagnostics.append(diagnostic)

    def _shown(self, metadata: StepMetadata) -> bool:
        if is_root(metadata.urn):
            return True
        if metadata.op == "same":
            return protection_changes(metadata) or self.options.show_same
        return self.options.show_replacement_steps or not is_replacement_part(metadata)

    def _refreshed(self, metadata: StepMetadata) -> None:
        """A refresh tells only at its end whether it is a deletion or a detailed change."""
        first = self._first.get(metadata.urn)
        if first is None or first.op != "refresh":
            return
        detailed = metadata.op == "update" and metadata.detailed_diff is not None
        if detailed or metadata.op == "delete":
            step = self._step(metadata)
            self._steps = [step if s["urn"] == metadata.urn else s for s in self._steps]

    def _step(self, metadata: StepMetadata) -> dict[str, Any]:
        step: dict[str, Any] = {"op": metadata.op, "urn": metadata.urn}
        if metadata.provider:
            step["provider"] = metadata.provider
        for name, state in (("oldState", metadata.old), ("newState", metadata.new)):
            if state is not None:
                step[name] = self._state(state)
        if metadata.diffs:
            step["diffReasons"] = list(metadata.diffs)
        if metadata.keys:
            step["replaceReasons"] = list(metadata.keys)
        step["detailedDiff"] = None
        if metadata.detailed_diff is not None:
            step["detailedDiff"] = {
                path: {"kind": diff.kind, "inputDiff": diff.input_diff}
                for path, diff in metadata.detailed_diff.items()
            }
        return step

    def _state(self, state: ResourceState) -> dict[str, Any]:
        return state.to_json(blinded)
