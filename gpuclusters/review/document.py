"""A review as JSON, for other programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuclusters.review.cost import Cost, Side
from gpuclusters.review.plan import Action
from gpuclusters.review.review import Failure, Level, Outcome, worst

FORM = 1
"""Number of this form; it grows when a field changes its meaning or goes."""
_VERDICTS = {
    Level.NOTHING: "no-changes",
    Level.SAFE: "safe",
    Level.LOOK: "needs-a-look",
    Level.DANGEROUS: "dangerous",
    Level.FAILED: "failed",
}


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON document of some stacks' reviews."""
    stacks = [_of_stack(one) for one in outcomes]
    return {"form": FORM, "verdict": _VERDICTS[worst(outcomes)], "stacks": stacks}


def _of_stack(review: Outcome) -> dict[str, Any]:
    if isinstance(review, Failure):
        return {"stack": review.stack, "verdict": "failed", "message": review.message}
    plan = review.plan
    counts = {action.value: plan.count(action) for action in Action if action is not Action.SAME}
    steps = (step for steps in review.groups.values() for step in steps)
    return {
        "stack": review.stack,
        "verdict": _VERDICTS[review.level],
        "reasons": list(review.reasons),
        "complete": plan.complete,
        "counts": {**counts, "unchanged": plan.unchanged},
        "down": [
            {
                "urn": impact.step.urn,
                "weight": impact.weight.name.lower(),
                "says": impact.says,
                "machine": impact.machine or None,
                "gpus": impact.gpus,
                "tenant": impact.tenant or None,
            }
            for impact in review.impacts
        ],
        "capacity": [
            {
                "cluster": capacity.cluster,
                "type": capacity.type,
                **{row.what: {"before": row.before, "after": row.after} for row in capacity.rows},
            }
            for capacity in review.capacities
        ],
        "cost": _cost(review.cost),
        "findings": [
            {
                "rule": finding.rule.id,
                "severity": finding.rule.severity.word,
                "urn": finding.urn,
                "says": finding.says,
                "new": finding.new,
            }
            for finding in review.findings
        ],
        "changes": [
            {
                "urn": step.urn,
                "action": step.action.value,
                "differences": [asdict(found) for found in review.differences(step)],
            }
            for step in steps
        ],
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "as-of": cost.table.as_of.isoformat(),
        "currency": cost.table.currency,
        "hours-per-month": cost.table.hours_per_month,
        "before": _side(cost.before),
        "after": _side(cost.after),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        # Unknown is null and never 0; what is known of a sum in which something is not is said apart.
        "per-hour": None if side.unknown else round(side.known, 4),
        "known-per-hour": round(side.known, 4),
        "unknown": [{"what": item.what, "why": item.why} for item in side.unknown],
    }
