"""Safe, needs a look, or dangerous: and why, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from gpuclusters.policy.rule import Severity
from gpuclusters.policy.rules import BUDGET
from gpuclusters.review.capacity import Capacity, Switch
from gpuclusters.review.cost import Cost
from gpuclusters.review.findings import Finding
from gpuclusters.review.impact import Impact, Weight
from gpuclusters.review.plan import Action, Plan
from gpuclusters.review.text import listed, plural


class Level(IntEnum):
    """How much a reviewer has to mind a change."""

    NOTHING = 0
    SAFE = 1
    LOOK = 2
    DANGEROUS = 3
    FAILED = 4
    """There is no plan to judge."""

    @property
    def words(self) -> str:
        """As it is written."""
        return ("no changes", "safe", "needs a look", "dangerous", "the preview failed")[self]

    @property
    def sign(self) -> str:
        """A sign to see it from afar."""
        return ("⚪", "🟢", "🟡", "🔴", "⛔")[self]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one stack's plan."""

    level: Level
    reasons: tuple[str, ...]
    """The weightiest first; each a sentence whose names are not escaped yet."""


def verdict(
    plan: Plan,
    *,
    impacts: Sequence[Impact],
    capacities: Sequence[Capacity],
    switched: Switch | None,
    cost: Cost,
    findings: Sequence[Finding],
) -> Verdict:
    """Judge a plan."""
    if not plan.changed:
        return Verdict(Level.NOTHING, ())
    reasons = [
        *_switched(switched),
        *_downtime(impacts),
        *_capacity(capacities, switched),
        *_policy(findings),
        *_money(cost),
    ]
    level = max((level for level, _ in reasons), default=Level.SAFE)
    # Of two reasons of the same weight the one that is found first says more.
    ordered = sorted(reasons, key=lambda r: -r[0])
    return Verdict(level, tuple(dict.fromkeys(text for _, text in ordered)))


_FEW = 2
"""Steps that are told of in the head, in full."""
_Reasons = list[tuple[Level, str]]


def _switched(switched: Switch | None) -> _Reasons:
    if switched is None:
        return []
    return [
        (
            Level.DANGEROUS,
            f"another cluster type: {listed(list(switched.gone))} goes with everything on it, "
            f"{listed(list(switched.come))} comes",
        )
    ]


def _downtime(impacts: Sequence[Impact]) -> _Reasons:
    reasons: _Reasons = []
    dangers = [impact for impact in impacts if impact.weight is Weight.DANGER]
    tenants = sorted({impact.tenant for impact in dangers if impact.tenant})
    if tenants:
        reasons.append(
            (Level.DANGEROUS, f"{plural(len(tenants), 'tenant')} taken down: {listed(tenants)}")
        )
    machines: dict[str, int] = {}
    for impact in dangers:
        if impact.machine:
            machines[impact.machine] = max(machines.get(impact.machine, 0), impact.gpus)
    if machines:
        gpus = sum(machines.values())
        what = f"{plural(gpus, 'GPU')} on " if gpus else ""
        reasons.append(
            (Level.DANGEROUS, f"{what}{listed(sorted(machines))} go down, or must be freed first")
        )
    others = [i for i in dangers if not i.machine and not i.tenant]
    unprotected = [i for i in others if i.step.unprotected]
    if unprotected:
        names = listed(sorted({i.step.name for i in unprotected}))
        reasons.append((Level.DANGEROUS, f"protection is taken off {names}"))
    lost = [i for i in others if not i.step.unprotected]
    if lost:
        names = listed(sorted({i.step.name for i in lost}))
        reasons.append((Level.DANGEROUS, f"lost for good or interrupted: {names}"))
    looks = [impact for impact in impacts if impact.weight is Weight.LOOK]
    if looks:
        names = listed(sorted({impact.step.name for impact in looks}), 4)
        told = f"{plural(len(looks), 'step')} to look at: {names}"
        if len(looks) <= _FEW:
            told = "; ".join(f"{impact.step.name}: {impact.says}" for impact in looks)
        reasons.append((Level.LOOK, told))
    return reasons


def _capacity(capacities: Sequence[Capacity], switched: Switch | None) -> _Reasons:
    reasons: _Reasons = []
    for capacity in capacities:
        gpus = capacity.row("GPUs")
        if gpus is None or switched is not None or not capacity.existed:
            continue
        if not capacity.stays:
            reasons.append(
                (
                    Level.DANGEROUS,
                    f"the cluster {capacity.cluster} goes, with {plural(gpus.before, 'GPU')}",
                )
            )
        elif gpus.after < gpus.before:
            reasons.append(
                (
                    Level.DANGEROUS,
                    f"{capacity.cluster} has {plural(gpus.after, 'GPU')} instead of {gpus.before}",
                )
            )
        promised = capacity.row("GPUs promised to tenants")
        if promised and promised.after > gpus.after and promised.after > promised.before:
            reasons.append(
                (
                    Level.LOOK,
                    f"tenants of {capacity.cluster} are promised {promised.after} GPUs, it has {gpus.after}",
                )
            )
    return reasons


def _policy(findings: Sequence[Finding]) -> _Reasons:
    reasons: _Reasons = []
    for severity, level in ((Severity.MANDATORY, Level.DANGEROUS), (Severity.ADVISORY, Level.LOOK)):
        found = [f for f in findings if f.new and f.rule.severity is severity]
        rules = sorted({f.rule.id for f in found} - {BUDGET})
        if rules:
            reasons.append((level, f"policy: {listed(rules)}"))
        reasons += [(level, f.says) for f in found if f.rule.id == BUDGET]
    return reasons


def _money(cost: Cost) -> _Reasons:
    reasons: _Reasons = []
    if cost.more_per_month >= 1:
        currency = cost.table.currency
        reasons.append((Level.LOOK, f"{cost.more_per_month:,.0f} {currency} a month more"))
    if cost.new_unknown:
        names = listed([item.what for item in cost.new_unknown], 3)
        reasons.append((Level.LOOK, f"cost unknown: {names}"))
    return reasons


def counts(plan: Plan) -> tuple[tuple[str, int], ...]:
    """How many resources each action concerns, without those that nothing happens to."""
    words = {
        Action.CREATE: "to create",
        Action.UPDATE: "to update",
        Action.REPLACE: "to replace",
        Action.DELETE: "to delete",
        Action.ADOPT: "to take over",
        Action.SAME: "to protect or unprotect",
    }
    return tuple((word, plan.count(action)) for action, word in words.items() if plan.count(action))
