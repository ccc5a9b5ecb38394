"""What a policy rule is: its name, how bad a violation is, what can be set, and how one is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from gpuclusters.policy.stack import Stack, Subject, Violation


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
        alias_generator=lambda name: name.replace("_", "-"),
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


def each(check: Callable[[Subject, Any], Iterable[str]]) -> Find:
    """A way to find that looks at one resource that stays at a time."""

    def run(stack: Stack, parameters: Any) -> Iterable[Violation]:
        for subject in stack.there:
            for says in check(subject, parameters):
                yield Violation(subject, says)

    return run
