"""The rule about what the stack may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import Stack, Violation


class BudgetParameters(Parameters):
    """How much, and at which prices."""

    monthly: float = Field(
        0,
        ge=0,
        description="The most that the stack may cost per month, in the currency of the price table; 0: no "
        "limit.",
    )
    refuse_unknown: bool = Field(
        default=False, description="Whether something without a price is a violation."
    )
    prices: dict[str, Any] = Field(
        default_factory=dict,
        description="Your prices, laid over those that come with the command, in the form of the file of "
        "`--prices`.",
    )


def over_budget(stack: Stack, parameters: BudgetParameters) -> Iterator[Violation]:
    """More than the stack may cost, as far as prices are known."""
    spending, blamed = stack.spending, stack.root
    if spending is None or blamed is None:
        return
    if parameters.monthly and spending.known > parameters.monthly:
        yield Violation(
            blamed,
            f"over budget: {spending.known:,.0f} {spending.currency} a month of "
            f"{parameters.monthly:,.0f}",
        )
    if parameters.refuse_unknown and spending.unknown:
        more = len(spending.unknown) - 3
        named = ", ".join(spending.unknown[:3]) + (f" and {more} more" if more > 0 else "")
        yield Violation(blamed, f"nobody knows what this costs: {named}")
