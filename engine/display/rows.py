"""What is known of each resource while a run goes on: the model behind the tree and the lines."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from engine.display.base import is_root
from engine.display.steps import KINDS, protection_changes
from engine.events import (
    Diagnostic,
    Event,
    ResourceFailed,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
)

_BAD = ("error", "warning")
Status = Literal["waiting", "running", "done", "failed"]


@dataclass
class Row:
    """One resource. Times are in seconds of a clock without a date.

    `metadata` is what is done to it as a whole, `part` the step of that which came last.
    """

    urn: str
    type: str
    name: str
    metadata: StepMetadata | None = None
    part: StepMetadata | None = None
    status: Status = "waiting"
    start: float = 0.0
    end: float = 0.0
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """Whether there is anything to tell about it."""
        step = self.metadata
        if self.status == "failed" or any(d.severity in _BAD for d in self.diagnostics):
            return True
        if step is None:
            return False
        return step.op != "same" or protection_changes(step)

    @property
    def seconds(self) -> float:
        """How long its step has been running, or ran."""
        if not self.start:
            return 0.0
        return (self.end or time.monotonic()) - self.start

    def words(self, *, preview: bool, part: bool = False) -> str:
        """What is, was or will be done to it: as a whole, or with its last step."""
        step = self.part if part else self.metadata
        if step is None:
            return ""
        kind = KINDS[step.op]
        if self.status == "failed":
            return f"{kind.doing or 'run'} failed"
        if preview:
            return kind.plan
        return kind.done if self.status == "done" else kind.doing

    def info(self) -> str:
        """The properties that differ, and the number of messages."""
        parts = []
        if self.metadata is not None:
            parts += _differences(self.metadata)
            if protection_changes(self.metadata) and self.metadata.new is not None:
                parts.append("[protected]" if self.metadata.new.protect else "[unprotected]")
        errors = sum(d.severity == "error" for d in self.diagnostics)
        warnings = sum(d.severity == "warning" for d in self.diagnostics)
        if errors:
            parts.append(f"{errors} error{'s' if errors > 1 else ''}")
        if warnings:
            parts.append(f"{warnings} warning{'s' if warnings > 1 else ''}")
        return "; ".join(parts)


def _differences(metadata: StepMetadata) -> list[str]:
    if metadata.op not in ("update", "replace", "create-replacement", "refresh"):
        return []
    if metadata.detailed_diff:
        signs = {"add": "+", "delete": "-", "update": "~"}
        paths = [
            f"{signs[diff.kind.split('-')[0]]}{path}"
            for path, diff in sorted(metadata.detailed_diff.items())
        ]
    else:
        paths = [f"~{key}" for key in metadata.diffs or metadata.keys]
    # Pickled providers differ with every change of their code, which tells nobody anything.
    hidden = ("__", *(metadata.new.hide_diff if metadata.new else ()))
    paths = [path for path in paths if not path[1:].startswith(hidden)]
    return [f"[diff: {','.join(paths)}]"] if paths else []


class Rows:
    """All resources of a run, in the order in which they came up."""

    def __init__(self, *, debug: bool = False) -> None:
        """`debug`: with what programs and plugins log for developers."""
        self._debug = debug
        self._rows: dict[str, Row] = {}
        self.general: list[Diagnostic] = []

    def __iter__(self) -> Iterator[Row]:
        return iter(list(self._rows.values()))

    def take(self, event: Event) -> Row | None:
        """Note an event; gives the row it was about."""
        if isinstance(event, Diagnostic):
            return self._diagnose(event)
        if not isinstance(event, (ResourcePre, ResourceOutputs, ResourceFailed)):
            return None
        row = self._row(event.metadata.urn, event.metadata.type)
        replaced = row.metadata is not None and row.metadata.op == "replace"
        if not (replaced and event.metadata.op != "replace"):
            # A replacement is told as one thing, not as the parts it consists of.
            row.metadata = event.metadata
        row.part = event.metadata
        if isinstance(event, ResourcePre):
            row.status = "running"
            row.start = row.start or time.monotonic()
            row.end = 0.0
        elif row.status != "failed":
            row.status = "done" if isinstance(event, ResourceOutputs) else "failed"
            row.end = time.monotonic()
        return row

    def outputs(self) -> Row | None:
        """The row of the stack, which has the outputs."""
        return next((row for row in self if is_root(row.urn)), None)

    def _diagnose(self, event: Diagnostic) -> Row | None:
        if (event.severity == "debug" and not self._debug) or not event.message.strip():
            return None
        if not event.urn or event.urn not in self._rows:
            self.general.append(event)
            return None
        row = self._rows[event.urn]
        row.diagnostics.append(event)
        return row

    def _row(self, urn: str, kind: str) -> Row:
        if urn not in self._rows:
            self._rows[urn] = Row(urn, kind, urn.split("::", 3)[-1])
        return self._rows[urn]


def short_type(token: str) -> str:
    """A type as people read it: ``pulumi-python:dynamic/gpu:CdiSpec`` without what repeats."""
    package, _, rest = token.partition(":")
    module, _, name = rest.partition(":")
    folder, slash, last = module.partition("/")
    if slash and last.lower() == name.lower():
        module = folder
    return ":".join(part for part in (package, module if module != "index" else "", name) if part)
