"""What became of creates that were cut off, carried out on a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lab.engine.state import Snapshot

CREATING = "creating"


@dataclasses.dataclass(frozen=True)
class Answers:
    """What became of creates, by their URNs: the ids of those that succeeded, those that did not.

    What is in neither stays pending.
    """

    made: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failed: frozenset[str] = frozenset()


def complete(snapshot: Snapshot, answers: Answers) -> Snapshot:
    """The snapshot without the creates of which somebody has said what became of them.

    One that succeeded is not in the state either: Pulumi's engine marks it as `importing` with
    its id, nothing in it reads that mark, and the refresh drops it (pulumi/pulumi 2026-08-21,
    `operations/refresh.go`, `backend/snapshot.go`). What is there has to be taken up by the
    next create, or put into the state by hand.
    """
    pending = tuple(
        operation
        for operation in snapshot.pending_operations
        if operation.type != CREATING
        or operation.resource.urn not in {*answers.made, *answers.failed}
    )
    return dataclasses.replace(snapshot, pending_operations=pending)
