"""A plan, judged: everything that a reviewer is shown, before it becomes Markdown, HTML or JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

from gpuclusters.policy.rule import Rule, Severity, Stack
from gpuclusters.policy.rules import BUDGET
from gpuclusters.review.cost import Cost, PriceTable, cost
from gpuclusters.review.diffing import Difference, differences
from gpuclusters.review.fleet import Capacity, Switch, capacities, fleet, switch
from gpuclusters.review.impact import Impact, Weight, impacts
from gpuclusters.review.plan import STACK_TYPE, Action, Plan, Resource, Step
from gpuclusters.review.text import listed, plural

_FEW = 2
_ORDER = {Action.DELETE: 0, Action.REPLACE: 1, Action.UPDATE: 2, Action.CREATE: 3}
_COUNTED = {
    Action.CREATE: "to create",
    Action.UPDATE: "to update",
    Action.REPLACE: "to replace",
    Action.DELETE: "to delete",
    Action.ADOPT: "to take over",
    Action.SAME: "to protect or unprotect",
}


class Level(IntEnum):
    """How much a reviewer has to mind a change."""

    NOTHING = 0
    SAFE = 1
    LOOK = 2
    DANGEROUS = 3
    FAILED = 4

    @property
    def words(self) -> str:
        return ("no changes", "safe", "needs a look", "dangerous", "the preview failed")[self]

    @property
    def sign(self) -> str:
        """A sign to see it from afar."""
        return ("⚪", "🟢", "🟡", "🔴", "⛔")[self]


Reason = tuple[Level, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a policy rule."""

    rule: Rule
    urn: str
    name: str
    type: str
    says: str
    new: bool
    """Whether the plan brings it: it was not there before."""


@dataclass(frozen=True)
class Review:
    plan: Plan
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
        return self.plan.stack

    @cached_property
    def _judged(self) -> list[Reason]:
        """The weightiest first; of two of the same weight the one that is found first says more."""
        return sorted(_reasons(self), key=lambda r: -r[0]) if self.plan.changed else []

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it has its level, each a sentence whose names are not escaped yet."""
        return tuple(dict.fromkeys(text for _, text in self._judged))

    @property
    def level(self) -> Level:
        if self._judged:
            return self._judged[0][0]
        return Level.SAFE if self.plan.changed else Level.NOTHING

    @property
    def counts(self) -> str:
        """How many resources each action concerns."""
        count = self.plan.count
        told = [f"{count(action):,} {word}" for action, word in _COUNTED.items() if count(action)]
        return ", ".join([*told, f"{self.plan.unchanged:,} unchanged"])

    @cached_property
    def groups(self) -> Mapping[str, tuple[Step, ...]]:
        """The steps that do something, by the outermost component that they are in, the worst first."""
        found: dict[str, list[Step]] = {}
        in_order = sorted(self.plan.changed, key=lambda s: (_rank(s), s.type, s.name, s.urn))
        for step in in_order:
            found.setdefault(_group(self.plan, step), []).append(step)
        names = sorted(found, key=lambda name: (_rank(found[name][0]), name))
        return {name: tuple(found[name]) for name in names}


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
    """Judge a plan, by what hardware costs and the rules that must hold."""
    counted, priced = capacities(plan), cost(plan, prices)
    found = findings(plan, rules, priced)
    return Review(plan, impacts(plan), counted, switch(counted), priced, found)


def worst(outcomes: Sequence[Outcome]) -> Level:
    """The level of all of them together."""
    return max((outcome.level for outcome in outcomes), default=Level.NOTHING)


def _rank(step: Step) -> int:
    return _ORDER.get(step.action, len(_ORDER))


def _group(plan: Plan, step: Step) -> str:
    around = [r for r in plan.parents(step.resource) if r.type != STACK_TYPE]
    if not around and not step.is_component:
        return "stack"
    outermost = around[-1] if around else step.resource
    return f"{outermost.type.removeprefix('gpu-clusters:')} {outermost.name}"


def findings(plan: Plan, rules: Iterable[Rule], cost: Cost) -> tuple[Finding, ...]:
    """What the policy rules find in the stack as it will be, the worst and the new ones first."""
    deleted = [
        step.old
        for step in plan.steps
        if step.old is not None and step.action in (Action.DELETE, Action.REPLACE)
    ]
    before = Stack([*map(_shown, plan.before())], cost.before)
    after = Stack([*map(_shown, plan.after())], cost.after, deleted)
    found = []
    for rule in rules:
        if rule.severity is Severity.DISABLED:
            continue
        known = {(v.resource.urn, v.says) for v in rule.look(before)}
        for violation in rule.look(after):
            on, says = violation.resource, violation.says
            new = (on.urn, says) not in known
            found.append(Finding(rule, on.urn, on.name, on.type, says, new))
    order = sorted(found, key=lambda f: (not f.new, -f.rule.severity, f.rule.id, f.urn, f.says))
    return tuple(order)


def _shown(resource: Resource) -> Resource:
    """To rules the stack itself is no thing: its outputs repeat those of others."""
    is_stack = resource.type == STACK_TYPE
    return replace(resource, inputs={}, outputs={}) if is_stack else resource


def _reasons(review: Review) -> Iterator[Reason]:
    if review.switched is not None:
        gone, come = (listed(list(some)) for some in (review.switched.gone, review.switched.come))
        said = f"another cluster type: {gone} goes with everything on it, {come} comes"
        yield Level.DANGEROUS, said
    yield from _downtime(review.impacts)
    if review.switched is None:
        yield from _at_once(review)
        for capacity in review.capacities:
            yield from _capacity(capacity)
    yield from _policy(review.findings)
    cost = review.cost
    more = cost.more_per_hour * cost.table.hours_per_month
    if more >= 1:
        yield Level.LOOK, f"{more:,.0f} {cost.table.currency} a month more"
    if cost.new_unknown:
        yield Level.LOOK, f"cost unknown: {listed([item.what for item in cost.new_unknown], 3)}"


def _downtime(impacts: Sequence[Impact]) -> Iterator[Reason]:
    dangers = [impact for impact in impacts if impact.weight is Weight.DANGER]
    tenants = sorted({impact.tenant for impact in dangers if impact.tenant})
    if tenants:
        said = f"{plural(len(tenants), 'tenant')} taken down: {listed(tenants)}"
        yield Level.DANGEROUS, said
    machines: dict[str, int] = {}
    for impact in dangers:
        if impact.machine:
            machines[impact.machine] = max(machines.get(impact.machine, 0), impact.gpus)
    if machines:
        gpus = sum(machines.values())
        what = f"{plural(gpus, 'GPU')} on " if gpus else ""
        said = f"{what}{listed(sorted(machines))} go down, or must be freed first"
        yield Level.DANGEROUS, said
    others = [i.step for i in dangers if not i.machine and not i.tenant]
    if unprotected := {step.name for step in others if step.unprotected}:
        yield Level.DANGEROUS, f"protection is taken off {listed(sorted(unprotected))}"
    if lost := {step.name for step in others if not step.unprotected}:
        yield Level.DANGEROUS, f"lost for good or interrupted: {listed(sorted(lost))}"
    looks = [impact for impact in impacts if impact.weight is Weight.LOOK]
    if len(looks) > _FEW:
        names = listed(sorted({impact.step.name for impact in looks}), 4)
        yield Level.LOOK, f"{plural(len(looks), 'step')} to look at: {names}"
    elif looks:
        yield Level.LOOK, "; ".join(f"{impact.step.name}: {impact.says}" for impact in looks)


def _at_once(review: Review) -> Iterator[Reason]:
    """Machines of one kind that all go down in this update, so that none of them serves."""
    changed = [one for one in review.impacts if one.step.action is not Action.DELETE]
    down = {one.machine for one in changed if one.weight is Weight.DANGER and one.gpus}
    for cluster in fleet(review.plan, after=False).values():
        kinds: dict[str, set[str]] = {}
        for machine in cluster.machines.values():
            if machine.gpus:
                kinds.setdefault(machine.kind, set()).add(machine.name)
        for kind, names in sorted(kinds.items()):
            if len(names) > 1 and names <= down:
                what = f"with {kind}" if kind else "with GPUs"
                said = f"all machines of {cluster.name} {what} ({len(names)}) go down in one update"
                yield Level.DANGEROUS, f"{said}; with --parallel 1 they go one after the other"


def _capacity(capacity: Capacity) -> Iterator[Reason]:
    gpus, promised = capacity.row("GPUs"), capacity.row("GPUs promised to tenants")
    if gpus is None or not capacity.existed:
        return
    name = capacity.cluster
    if not capacity.stays:
        yield Level.DANGEROUS, f"the cluster {name} goes, with {plural(gpus.before, 'GPU')}"
    elif gpus.after < gpus.before:
        said = f"{name} has {plural(gpus.after, 'GPU')} instead of {gpus.before}"
        yield Level.DANGEROUS, said
    if promised and promised.after > max(gpus.after, promised.before):
        said = f"tenants of {name} are promised {promised.after} GPUs, it has {gpus.after}"
        yield Level.LOOK, said


def _policy(findings: Sequence[Finding]) -> Iterator[Reason]:
    for severity, level in ((Severity.MANDATORY, Level.DANGEROUS), (Severity.ADVISORY, Level.LOOK)):
        found = [f for f in findings if f.new and f.rule.severity is severity]
        rules = sorted({f.rule.id for f in found} - {BUDGET})
        if rules:
            yield level, f"policy: {listed(rules)}"
        yield from ((level, f.says) for f in found if f.rule.id == BUDGET)
