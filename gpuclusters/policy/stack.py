"""A stack as policy rules see it: the same whether a preview was reviewed or Pulumi asks the policy pack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
DYNAMIC = "gpu-clusters:gpu:"


@dataclass(frozen=True, slots=True)
class Subject:
    """A resource as rules see it."""

    type: str
    name: str
    props: Mapping[str, Any]
    """Its inputs, secrets masked."""
    protect: bool = False
    urn: str = ""
    deleted: bool = False
    """Whether the plan deletes it; rules about what is there skip it."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What was found out about it; empty before it is made."""

    @property
    def host(self) -> str:
        """The machine that it is on; empty where it does not say."""
        reached = self.props.get("connection")
        return str(reached.get("host") or "") if isinstance(reached, Mapping) else ""

    @property
    def stack(self) -> str:
        parts = self.urn.split(":", 3)
        return parts[2] if len(parts) == 4 else ""


@dataclass(frozen=True, slots=True)
class Violation:
    subject: Subject
    says: str


@dataclass(frozen=True, slots=True)
class Spending:
    known: float
    currency: str
    unknown: Sequence[str] = ()
    """What has no price, in words."""


@dataclass(frozen=True)
class Stack:
    subjects: Sequence[Subject]
    spending: Spending | None = None
    """None where nobody has added it up, as for one resource alone."""

    @cached_property
    def there(self) -> Sequence[Subject]:
        return [subject for subject in self.subjects if not subject.deleted]

    @cached_property
    def tenants(self) -> int:
        """How many tenants share the cluster: by their policies, else by the quotas of their namespaces."""
        policies = {s.props.get("tenant") for s in self.of(f"{DYNAMIC}TenancyPolicy")}
        quotas = {s.name for s in self.of("kubernetes:core/v1:ResourceQuota")}
        return max(len(policies), len(quotas))

    def of(self, type_: str) -> Iterator[Subject]:
        return (subject for subject in self.there if subject.type == type_)

    @property
    def root(self) -> Subject | None:
        """The stack itself, which is blamed for what no single resource does."""
        first = next(iter(self.there), None)
        return next(self.of(STACK_TYPE), first)
