"""What a rule about GPU clusters finds in a plan.

Rules are plain functions over a resource's type, name, properties and protection, so that the same ones run
here, in tests, and as a Pulumi policy pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from gpuclusters.review.plan import STACK_TYPE, Action, Plan, Resource


class Severity(IntEnum):
    """What a finding does to the verdict."""

    OFF = 0
    ADVISORY = 1
    """The change needs a look."""
    MANDATORY = 2
    """The change is dangerous, and the gate `policy` fails."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A resource as rules see it."""

    type: str
    name: str
    props: Mapping[str, Any]
    protect: bool = False
    urn: str = ""
    deleted: bool = False
    """Whether the plan deletes it; rules about what is there skip it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule says of one resource."""

    subject: Subject
    says: str


Check = Callable[[Iterable[Subject]], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it is about, how bad a violation is, and how one is found."""

    id: str
    severity: Severity
    title: str
    check: Check
    """Gets all resources of a stack at once."""


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


def each(check: Callable[[Subject], Iterable[str]]) -> Check:
    """A rule that looks at one resource that stays at a time."""

    def run(subjects: Iterable[Subject]) -> Iterable[Violation]:
        for subject in subjects:
            if not subject.deleted:
                for says in check(subject):
                    yield Violation(subject, says)

    return run


def with_severities(rules: Iterable[Rule], severities: Mapping[str, Severity]) -> tuple[Rule, ...]:
    """The rules, with severities of one's own by id.

    Raises:
        KeyError: an id that no rule has.
    """
    by_id = {rule.id: rule for rule in rules}
    for id_, severity in severities.items():
        by_id[id_] = replace(by_id[id_], severity=severity)
    return tuple(by_id.values())


def findings(plan: Plan, rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """What the rules find in the stack as it will be, the worst and the new ones first."""
    before = [_subject(step.old) for step in plan.steps if step.old is not None]
    after = [
        *(_subject(r) for r in plan.after()),
        *(
            _subject(step.old, deleted=True)
            for step in plan.steps
            if step.old is not None and step.action in (Action.DELETE, Action.REPLACE)
        ),
    ]
    found = []
    for rule in rules:
        if rule.severity is Severity.OFF:
            continue
        known = {(v.subject.urn, v.says) for v in rule.check(before)}
        found += [
            Finding(
                rule=rule,
                urn=violation.subject.urn,
                name=violation.subject.name,
                type=violation.subject.type,
                says=violation.says,
                new=(violation.subject.urn, violation.says) not in known,
            )
            for violation in rule.check(after)
        ]
    return tuple(
        sorted(found, key=lambda f: (not f.new, -f.rule.severity, f.rule.id, f.urn, f.says))
    )


def _subject(resource: Resource, *, deleted: bool = False) -> Subject:
    return Subject(
        resource.type,
        resource.name,
        resource.inputs if resource.type != STACK_TYPE else {},
        resource.protect,
        resource.urn,
        deleted,
    )
