"""`--logtostderr`: what happens when, as lines of a log."""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading

from lab.engine.display.base import Display, Options
from lab.engine.events import (
    Diagnostic,
    Event,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
    Summary,
)
from lab.engine.values import Blinded, values_to_state

_LETTERS = {"error": "E", "warning": "W"}
STEPS, CONTENT = 2, 3


class Log(Display):
    """Writes lines in the form of Pulumi's own log (glog).

    Level 0 is warnings and errors, 1 all messages, 2 steps as well, 3 and more what is in them.
    """

    def __init__(self, options: Options, level: int) -> None:
        super().__init__(options)
        self._level = level

    def show(self, event: Event) -> None:
        """See `Display`."""
        event = self.prepared(event)
        if isinstance(event, Diagnostic):
            letter = _LETTERS.get(event.severity, "I")
            if letter != "I" or self._level:
                self._write(letter, f"{event.urn or 'run'}: {event.message.rstrip()}")
        elif self._level < STEPS:
            return
        elif isinstance(event, ResourcePre):
            self._write("I", f"begin {self._step(event.metadata)}")
        elif isinstance(event, ResourceOutputs):
            self._write("I", f"end {self._step(event.metadata)}")
        elif isinstance(event, ResourceFailed):
            self._write("E", f"failed {self._step(event.metadata)}")
        elif isinstance(event, Summary):
            self._write("I", f"{event.result} after {event.duration_seconds} s: {event.changes}")

    def _step(self, metadata: StepMetadata) -> str:
        text = f"{metadata.op} {metadata.urn}"
        if self._level < CONTENT:
            return text
        mask = self.options.mask.value
        for side, state in (("old", metadata.old), ("new", metadata.new)):
            if state is not None:
                values = {
                    "inputs": mask(values_to_state(state.inputs, Blinded())),
                    "outputs": mask(values_to_state(state.outputs, Blinded())),
                }
                text += f" {side}={json.dumps(values, ensure_ascii=False)}"
        return text

    @staticmethod
    def _write(letter: str, text: str) -> None:
        now = datetime.datetime.now()
        stamp = f"{letter}{now:%m%d %H:%M:%S.%f} {os.getpid()} {threading.current_thread().name}"
        for line in text.splitlines() or [""]:
            print(f"{stamp}] {line}", file=sys.stderr, flush=True)
