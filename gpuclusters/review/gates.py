"""Gates: what makes the command fail, so that a pipeline stops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.policy.rule import Severity
from gpuclusters.review.plan import Action
from gpuclusters.review.review import Failure, Level, Outcome, Review
from gpuclusters.review.text import plural

EXIT_GATE = 5
"""As Pulumi's own for a policy that is not kept."""
_COST = re.compile(r"cost>(\d+(?:\.\d+)?)")


class GateError(ValueError):
    """A gate that does not exist."""


class Kind(StrEnum):
    DELETE = "delete"
    REPLACE = "replace"
    POLICY = "policy"
    DANGEROUS = "dangerous"
    LOOK = "look"
    UNKNOWN_COST = "unknown-cost"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `limit` is in the price table's currency per month, of `cost` alone."""

    kind: Kind
    limit: float = 0.0


def parse(text: str) -> tuple[Gate, ...]:
    """Gates as they are written: `delete,replace,policy,cost>50000`; GateError names one that is none."""
    gates = []
    words = set(Kind) - {Kind.COST}
    for word in filter(None, map(str.strip, text.split(","))):
        limited = _COST.fullmatch(word.replace(" ", ""))
        if not limited and word not in words:
            known = ", ".join(sorted(words))
            raise GateError(f"{word!r} is no gate; write some of {known}, or cost>N (a month)")
        gates.append(Gate(Kind.COST, float(limited[1])) if limited else Gate(Kind(word)))
    return tuple(gates)


def closed(outcomes: Sequence[Outcome], gates: Sequence[Gate]) -> list[str]:
    """Why the pipeline has to stop, a sentence each; empty where every gate is open."""
    return [
        f"{outcome.stack}: {reason}"
        for outcome in outcomes
        if not isinstance(outcome, Failure)
        for gate in gates
        if (reason := _closed(outcome, gate))
    ]


def _closed(review: Review, gate: Gate) -> str:
    plan = review.plan
    if gate.kind in (Kind.DELETE, Kind.REPLACE):
        count = plan.count(Action(gate.kind.value))
        return f"{plural(count, 'resource')} to {gate.kind}" if count else ""
    if gate.kind is Kind.POLICY:
        found = [f for f in review.findings if f.new and f.rule.severity is Severity.MANDATORY]
        rules = ", ".join(sorted({f.rule.id for f in found}))
        return f"policy is not kept: {rules}" if found else ""
    if gate.kind is Kind.UNKNOWN_COST:
        unknown = review.cost.new_unknown
        return f"the cost of {plural(len(unknown), 'thing')} is not known" if unknown else ""
    if gate.kind is Kind.COST:
        table = review.cost.table
        total = review.cost.after.known * table.hours_per_month
        over = total > gate.limit
        return f"{total:,.0f} {table.currency} a month, more than {gate.limit:,.0f}" if over else ""
    level = Level.DANGEROUS if gate.kind is Kind.DANGEROUS else Level.LOOK
    return f"the change is judged: {review.level.words}" if review.level >= level else ""
