"""What became of creates that were cut off, carried out on a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lab.engine.state import PendingOperation, Snapshot

CREATING = "creating"


@dataclasses.dataclass(frozen=True)
class Answers:
    """What became of creates, by their URNs: the ids of those that succeeded, those that did not.

    What is in neither stays pending.
    """

    made: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failed: frozenset[str] = frozenset()


def complete(snapshot: Snapshot, answers: Answers) -> Snapshot:
    """The snapshot with what is known of its pending creates carried out.

    One that succeeded becomes a resource with that id; a refresh then reads the rest. If it was
    to replace another resource, that one is left to be deleted.
    """
    resources = list(snapshot.resources)
    pending: list[PendingOperation] = []
    for operation in snapshot.pending_operations:
        urn = operation.resource.urn
        if operation.type != CREATING or urn not in {*answers.made, *answers.failed}:
            pending.append(operation)
            continue
        if urn in answers.failed:
            continue
        for index, old in enumerate(resources):
            if old.urn == urn and not old.delete:
                resources[index] = dataclasses.replace(old, delete=True)
        state = operation.resource.copy()
        state.id = answers.made[urn]
        state.outputs = state.outputs or dict(state.inputs)
        resources.append(state)
    return dataclasses.replace(
        snapshot, resources=tuple(resources), pending_operations=tuple(pending)
    )
