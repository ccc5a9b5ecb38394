"""What the policy rules find in a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuclusters.policy.rule import Rule, Severity
from gpuclusters.policy.stack import STACK_TYPE, Spending, Stack, Subject
from gpuclusters.review.cost import Cost, Side
from gpuclusters.review.plan import Action, Plan, Resource


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation in a plan."""

    rule: Rule
    urn: str
    name: str
    type: str
    says: str
    new: bool
    """Whether the plan brings it: it was not there before."""


def findings(plan: Plan, rules: Iterable[Rule], cost: Cost) -> tuple[Finding, ...]:
    """What the rules find in the stack as it will be, the worst and the new ones first."""
    before = Stack(
        [_subject(step.old) for step in plan.steps if step.old is not None],
        _spending(cost.before, cost),
    )
    deleted = [
        _subject(step.old, deleted=True)
        for step in plan.steps
        if step.old is not None and step.action in (Action.DELETE, Action.REPLACE)
    ]
    after = Stack([*(_subject(r) for r in plan.after()), *deleted], _spending(cost.after, cost))
    found = []
    for rule in rules:
        if rule.severity is Severity.DISABLED:
            continue
        known = {(v.subject.urn, v.says) for v in rule.look(before)}
        found += [
            Finding(
                rule=rule,
                urn=violation.subject.urn,
                name=violation.subject.name,
                type=violation.subject.type,
                says=violation.says,
                new=(violation.subject.urn, violation.says) not in known,
            )
            for violation in rule.look(after)
        ]
    return tuple(
        sorted(found, key=lambda f: (not f.new, -f.rule.severity, f.rule.id, f.urn, f.says))
    )


def _spending(side: Side, cost: Cost) -> Spending:
    table = cost.table
    unknown = tuple(item.what for item in side.unknown)
    return Spending(side.known * table.hours_per_month, table.currency, unknown)


def _subject(resource: Resource, *, deleted: bool = False) -> Subject:
    is_stack = resource.type == STACK_TYPE
    return Subject(
        resource.type,
        resource.name,
        {} if is_stack else resource.inputs,
        resource.protect,
        resource.urn,
        deleted,
        {} if is_stack else resource.outputs,
    )
