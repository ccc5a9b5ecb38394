"""A preview as Pulumi's `preview --json` tells it: which resources there are, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_PREFIX = "pulumi:providers:"
OURS, KEPT = "gpu-clusters:", "gpu-clusters:gpu:"
"""Prefixes of what this program declares, and of what its own provider keeps; the rest are components."""


def is_component(type_: str) -> bool:
    """Whether a type is one of our groupings and no thing of its own."""
    return type_.startswith(OURS) and not type_.startswith(KEPT)


class PlanError(Exception):
    """A document that cannot be reviewed. The message says why, and what to do."""

    error_id = "review.plan"


class Action(StrEnum):
    """What becomes of a resource, as a reviewer thinks of it."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    ADOPT = "adopt"
    """Taken over from what is there, or taken out of the state: nothing is made or removed."""
    READ = "read"
    SAME = "same"


ACTIONS: Mapping[str, Action | None] = {
    "same": Action.SAME,
    "create": Action.CREATE,
    "update": Action.UPDATE,
    "delete": Action.DELETE,
    "replace": Action.REPLACE,
    "read": Action.READ,
    "refresh": Action.READ,
    "import": Action.ADOPT,
    "import-replacement": Action.REPLACE,
    "read-replacement": Action.READ,
    "read-discard": Action.READ,
    "discard": Action.READ,
    "discard-replaced": None,
    # The parts of a replacement; the step `replace` stands for them.
    "create-replacement": None,
    "delete-replaced": None,
    "remove-pending-replace": None,
    "pending-replace": None,
}
"""By the engine's kind of step; None for what another step says already."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One side of a step: the resource as it is, or as it will be."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    protect: bool
    urn: str
    parent: str

    @property
    def kind(self) -> str:
        """The last part of the type: `FabricPartitions`, `Deployment`."""
        return self.type.rsplit(":", 1)[-1].rsplit("/", 1)[-1]

    def text(self, *path: str) -> str | None:
        """An input that is a text, by its path; None where there is none."""
        value = self.at(*path)
        return value if isinstance(value, str) else None

    def at(self, *path: str) -> Any:
        """An input by its path; None where there is none."""
        value: Any = self.inputs
        for key in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one resource."""

    action: Action
    urn: str
    old: Resource | None
    new: Resource | None
    replace_reasons: tuple[str, ...] = ()
    """Properties that cannot be changed in place."""
    detailed: Mapping[str, str] = field(default_factory=dict)
    """Kind of difference by path, where the provider told."""
    hidden: tuple[str, ...] = ()
    """Properties whose differences the program hides."""

    @property
    def resource(self) -> Resource:
        """The new side, or the old one where nothing new comes."""
        found = self.new or self.old
        if found is None:
            raise PlanError(f"the step of {self.urn} has neither an old nor a new state")
        return found

    @property
    def type(self) -> str:
        """Type of the resource itself."""
        return self.resource.type

    @property
    def name(self) -> str:
        """The name that the program gave."""
        return self.resource.name

    @property
    def unprotected(self) -> bool:
        """Whether this takes the protection away from a resource that stays."""
        return bool(self.old and self.new and self.old.protect and not self.new.protect)

    @property
    def newly_protected(self) -> bool:
        """Whether this protects a resource that was not."""
        return bool(self.old and self.new and self.new.protect and not self.old.protect)

    @property
    def changes(self) -> bool:
        """Whether anything is done, or the protection changes."""
        return (
            self.action not in (Action.SAME, Action.READ)
            or self.unprotected
            or self.newly_protected
        )

    @property
    def is_component(self) -> bool:
        """Whether this is one of our groupings and no thing of its own."""
        return is_component(self.type) or self.type == STACK_TYPE

    @property
    def is_provider(self) -> bool:
        """Whether this is only a connection that other resources use."""
        return self.type.startswith(PROVIDER_PREFIX)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a preview found. It is the same only as itself, so that what is found out of it can be kept."""

    stack: str
    project: str
    config: Mapping[str, str]
    steps: tuple[Step, ...]
    """In an order that does not depend on the engine's: by component, type and name."""
    summary: Mapping[str, int]
    """Number of steps by the engine's kind of step."""
    warnings: tuple[str, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, Step]:
        """The steps."""
        return {step.urn: step for step in self.steps}

    @property
    def unchanged(self) -> int:
        """How many resources stay as they are."""
        listed = sum(step.action is Action.SAME and not step.changes for step in self.steps)
        return max(self.summary.get("same", 0), listed)

    @property
    def complete(self) -> bool:
        """Whether unchanged resources are listed too, so that totals can be told."""
        listed = sum(step.action is Action.SAME for step in self.steps)
        return listed >= self.summary.get("same", 0)

    @property
    def changed(self) -> tuple[Step, ...]:
        """The steps that do something to a thing: without groupings, the stack, and mere connections."""
        return tuple(
            step
            for step in self.steps
            if step.changes
            and not step.is_provider
            and (not step.is_component or step.unprotected or step.newly_protected)
        )

    def count(self, action: Action) -> int:
        """How many resources of this stack an action concerns; the stack itself is none."""
        return sum(step.action is action for step in self.changed)

    def before(self) -> Iterator[Resource]:
        """Every resource that is there now, as far as the plan tells."""
        return (step.old for step in self.steps if step.old is not None)

    def after(self) -> Iterator[Resource]:
        """Every resource that will be there, as far as the plan tells."""
        return (
            step.new
            for step in self.steps
            if step.new is not None and step.action is not Action.DELETE
        )

    @cached_property
    def cluster_types(self) -> Mapping[Action, frozenset[str]]:
        """Cluster types of the components of ours that an action concerns."""
        found: dict[Action, set[str]] = {}
        for step in self.steps:
            if is_component(step.type):
                found.setdefault(step.action, set()).add(step.type.split(":")[1])
        return {action: frozenset(types) for action, types in found.items()}

    def parents(self, resource: Resource) -> Iterator[Resource]:
        """The components around a resource, from the inside out."""
        seen: set[str] = set()
        urn = resource.parent
        while urn in self.by_urn and urn not in seen:
            seen.add(urn)
            parent = self.by_urn[urn].resource
            yield parent
            urn = parent.parent
