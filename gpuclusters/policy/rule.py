"""What a policy rule is: its name, how bad a violation is, what can be set, and how one is found.

A stack is the same to it whether a preview was reviewed or Pulumi asks the policy pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from gpuclusters.core.naming import kebab
from gpuclusters.review.cost import Side
from gpuclusters.review.plan import KEPT, STACK_TYPE, Resource


@dataclass(frozen=True, slots=True)
class Violation:
    resource: Resource
    says: str


@dataclass(frozen=True)
class Stack:
    resources: Sequence[Resource]
    spending: Side | None = None
    """None where nobody has added it up, as for one resource alone."""
    deleted: Sequence[Resource] = ()

    @cached_property
    def tenants(self) -> int:
        """How many tenants share the cluster: by their policies, else by the quotas of their namespaces."""
        policies = {r.inputs.get("tenant") for r in self.of(f"{KEPT}TenancyPolicy")}
        quotas = {r.name for r in self.of("kubernetes:core/v1:ResourceQuota")}
        return max(len(policies), len(quotas))

    def of(self, type_: str) -> Iterator[Resource]:
        return (resource for resource in self.resources if resource.type == type_)

    @property
    def root(self) -> Resource | None:
        """The stack itself, which is blamed for what no single resource does."""
        first = next(iter(self.resources), None)
        return next(self.of(STACK_TYPE), first)


class Severity(IntEnum):
    """What a finding does: Pulumi's enforcement levels, without `remediate`, as no rule changes anything."""

    DISABLED = 0
    ADVISORY = 1
    """The change needs a look."""
    MANDATORY = 2
    """The change is dangerous, the gate `policy` closes, and the policy pack stops Pulumi."""

    @property
    def word(self) -> str:
        return self.name.lower()


class Scope(StrEnum):
    RESOURCE = "resource"
    """One resource at a time, before it is made."""
    STACK = "stack"
    """All resources together."""
    CHANGE = "change"
    """Also what is deleted, which only a review of a preview knows."""


class Parameters(BaseModel):
    """What can be set of a rule; most have nothing."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        validate_by_name=True,
    )


Find = Callable[[Stack, Any], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Its page is docs/policy/<id>.md."""

    id: str
    severity: Severity
    title: str
    scope: Scope
    find: Find
    parameters: Parameters = field(default_factory=Parameters)

    def look(self, stack: Stack) -> Iterable[Violation]:
        """Everything that is not as the rule wants it; also where the rule is disabled."""
        return self.find(stack, self.parameters)

    @property
    def page(self) -> str:
        return f"docs/policy/{self.id}.md"


def each(check: Callable[[Resource, Any], Iterable[str]]) -> Find:
    """A way to find that looks at one resource that stays at a time."""

    def run(stack: Stack, parameters: Any) -> Iterable[Violation]:
        for resource in stack.resources:
            for says in check(resource, parameters):
                yield Violation(resource, says)

    return run
