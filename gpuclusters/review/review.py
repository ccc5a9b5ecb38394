"""A plan, judged: everything that a reviewer is shown, before it becomes Markdown, HTML or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from gpuclusters.policy.rule import Rule
from gpuclusters.review.capacity import Capacity, Switch, capacities, switch
from gpuclusters.review.cost import Cost, cost
from gpuclusters.review.diffing import Difference, differences
from gpuclusters.review.findings import Finding, findings
from gpuclusters.review.impact import Impact, Weight, impacts
from gpuclusters.review.plan import STACK_TYPE, Action, Plan, Step
from gpuclusters.review.prices import PriceTable
from gpuclusters.review.verdict import Level, Verdict, verdict


@dataclass(frozen=True)
class Review:
    """What is said of one stack's plan."""

    plan: Plan
    verdict: Verdict
    impacts: tuple[Impact, ...]
    capacities: tuple[Capacity, ...]
    switched: Switch | None
    cost: Cost
    findings: tuple[Finding, ...]

    @cached_property
    def _differences(self) -> dict[str, list[Difference]]:
        return {}

    def differences(self, step: Step) -> list[Difference]:
        """How a resource differs; found out once for all forms that a review takes."""
        if step.urn not in self._differences:
            self._differences[step.urn] = differences(step)
        return self._differences[step.urn]

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return self.plan.stack

    @property
    def level(self) -> Level:
        """How much it has to be minded."""
        return self.verdict.level

    @property
    def downtime(self) -> tuple[Impact, ...]:
        """What has to be told of what goes down."""
        return tuple(impact for impact in self.impacts if impact.weight is not Weight.NONE)

    @cached_property
    def groups(self) -> Mapping[str, tuple[Step, ...]]:
        """The steps that do something, by the outermost component that they are in."""
        found: dict[str, list[Step]] = {}
        for step in self.plan.changed:
            found.setdefault(_group(self.plan, step), []).append(step)
        order = {Action.DELETE: 0, Action.REPLACE: 1, Action.UPDATE: 2, Action.CREATE: 3}
        return {
            group: tuple(
                sorted(found[group], key=lambda s: (order.get(s.action, 4), s.type, s.name, s.urn))
            )
            for group in sorted(
                found, key=lambda g: (min(order.get(s.action, 4) for s in found[g]), g)
            )
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """A stack whose plan could not be had."""

    stack: str
    message: str

    @property
    def level(self) -> Level:
        """Worse than dangerous: nobody knows."""
        return Level.FAILED


Outcome: TypeAlias = Review | Failure


def review(plan: Plan, *, prices: PriceTable, rules: Sequence[Rule]) -> Review:
    """Judge a plan."""
    counted = capacities(plan)
    taken_down, switched = impacts(plan), switch(counted)
    priced = cost(plan, prices)
    found = findings(plan, rules, priced)
    return Review(
        plan=plan,
        verdict=verdict(
            plan,
            impacts=taken_down,
            capacities=counted,
            switched=switched,
            cost=priced,
            findings=found,
        ),
        impacts=taken_down,
        capacities=counted,
        switched=switched,
        cost=priced,
        findings=found,
    )


def worst(outcomes: Sequence[Outcome]) -> Level:
    """The level of all of them together."""
    return max((outcome.level for outcome in outcomes), default=Level.NOTHING)


def _group(plan: Plan, step: Step) -> str:
    chain = [p for p in _upward(plan, step) if p.type != STACK_TYPE]
    if chain:
        return f"{chain[-1].type.removeprefix('gpu-clusters:')} {chain[-1].name}"
    if step.is_component:
        return f"{step.type.removeprefix('gpu-clusters:')} {step.name}"
    return "stack"


def _upward(plan: Plan, step: Step) -> Iterator[Step]:
    for parent in plan.parents(step.resource):
        yield plan.by_urn[parent.urn]
