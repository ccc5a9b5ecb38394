"""Gates: what makes the command fail, so that a pipeline stops."""

import re
from collections.abc import Sequence

from gpuclusters.policy.rule import Severity
from gpuclusters.review.plan import Action
from gpuclusters.review.review import Failure, Level, Outcome, Review
from gpuclusters.review.text import plural

EXIT_GATE = 5
"""As Pulumi's own for a policy that is not kept."""
_COST = re.compile(r"cost>(\d+(?:\.\d+)?)")


class GateError(ValueError):
    """A gate that does not exist."""


_WORDS = ("dangerous", "delete", "look", "policy", "replace", "unknown-cost")


def parse(text: str) -> tuple[str, ...]:
    """Gates as they are written: `delete,replace,policy,cost>50000`; GateError names one that is none."""
    gates = [word.replace(" ", "") for word in map(str.strip, text.split(",")) if word]
    for word in gates:
        if word not in _WORDS and not _COST.fullmatch(word):
            known = ", ".join(_WORDS)
            raise GateError(f"{word!r} is no gate; write some of {known}, or cost>N (a month)")
    return tuple(gates)


def closed(outcomes: Sequence[Outcome], gates: Sequence[str]) -> list[str]:
    """Why the pipeline has to stop, a sentence each; empty where every gate is open."""
    return [
        f"{outcome.stack}: {reason}"
        for outcome in outcomes
        if not isinstance(outcome, Failure)
        for gate in gates
        if (reason := _closed(outcome, gate))
    ]


def _closed(review: Review, gate: str) -> str:
    plan = review.plan
    if gate in ("delete", "replace"):
        count = plan.count(Action(gate))
        return f"{plural(count, 'resource')} to {gate}" if count else ""
    if gate == "policy":
        found = [f for f in review.findings if f.new and f.rule.severity is Severity.MANDATORY]
        rules = ", ".join(sorted({f.rule.id for f in found}))
        return f"policy is not kept: {rules}" if found else ""
    if gate == "unknown-cost":
        unknown = review.cost.new_unknown
        return f"the cost of {plural(len(unknown), 'thing')} is not known" if unknown else ""
    if limited := _COST.fullmatch(gate):
        table, limit = review.cost.table, float(limited[1])
        total = review.cost.after.known * table.hours_per_month
        over = f"{total:,.0f} {table.currency} a month, more than {limit:,.0f}"
        return over if total > limit else ""
    level = Level.DANGEROUS if gate == "dangerous" else Level.LOOK
    return f"the change is judged: {review.level.words}" if review.level >= level else ""
