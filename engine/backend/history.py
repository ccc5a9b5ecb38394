"""What was done to a stack and when: one record and one copy of the state per finished run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.backend.bucket import Bucket
from engine.backend.layout import StackReference
from engine.usererror import UserError


@dataclass(frozen=True)
class UpdateRecord:
    """One finished run. Times are in seconds since 1970; `config` has secrets encrypted."""

    kind: str
    start: int
    end: int
    result: str
    message: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    version: int = 0

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": self.kind,
            "startTime": self.start,
            "message": self.message,
            "environment": dict(self.environment),
            "config": dict(self.config),
            "version": self.version,
            "result": self.result,
            "endTime": self.end,
        }
        if self.changes:
            document["resourceChanges"] = dict(self.changes)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> UpdateRecord:
        """The record in a file; what is missing is empty."""
        return cls(
            kind=str(document.get("kind", "")),
            start=int(document.get("startTime") or 0),
            end=int(document.get("endTime") or 0),
            result=str(document.get("result", "")),
            message=str(document.get("message") or ""),
            environment=document.get("environment") or {},
            config=document.get("config") or {},
            changes=document.get("resourceChanges") or {},
            version=int(document.get("version") or 0),
        )


def add(bucket: Bucket, stack: StackReference, record: UpdateRecord) -> None:
    """Note a finished run, and keep a copy of the state it left."""
    prefix = f"{stack.history}/{stack.name}-{time.time_ns()}"
    text = json.dumps(record.to_json(), separators=(",", ":"), ensure_ascii=False)
    bucket.write(f"{prefix}.history.json", text.encode(), durable=False)
    bucket.copy(stack.checkpoint, f"{prefix}.checkpoint.json")


def back_up(bucket: Bucket, stack: StackReference) -> None:
    """Keep a copy of the state among the backups."""
    bucket.copy(stack.checkpoint, f"{stack.backups}/{stack.name}.{time.time_ns()}.json")


def read(bucket: Bucket, stack: StackReference) -> list[UpdateRecord]:
    """All records of a stack, the newest first; the oldest run is number 1."""
    keys = [key for key in bucket.keys(stack.history) if key.endswith(".history.json")]
    return [_record(bucket, key) for key in reversed(keys)]


def _record(bucket: Bucket, key: str) -> UpdateRecord:
    try:
        return UpdateRecord.from_json(json.loads(bucket.read(key)))
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"the history record {bucket.path(key)} is damaged: {error}") from error
