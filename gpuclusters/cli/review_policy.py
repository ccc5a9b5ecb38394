"""Which policy rules a review looks at, how bad each is, and at which prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuclusters.cli.errors import WrongOptionError
from gpuclusters.domain.prices import PriceTable
from gpuclusters.policy.rule import Rule
from gpuclusters.policy.rules import BUDGET, RULES, BudgetParameters
from gpuclusters.policy.settings import (
    LEVEL,
    SettingsError,
    configured,
    nearest,
    read_settings,
    severity_of,
)
from gpuclusters.review.cost import PriceError, price_table

_OFF = "off"


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What can be said about the rules."""

    file: Path | None = None
    """In the form of Pulumi's policy configuration."""
    severities: Sequence[str] = ()
    """`rule=level`, over what the file says."""
    budget: float | None = None
    prices: Path | None = None


def rules(options: PolicyOptions) -> tuple[Rule, ...]:
    """The rules as the options set them.

    Raises:
        WrongOptionError: an unknown rule, level or parameter; the message has all faults.
    """
    try:
        made = RULES if options.file is None else read_settings(options.file, RULES)
    except SettingsError as error:
        raise WrongOptionError(f"--policy: {error}") from error
    known = [rule.id for rule in RULES]
    stated: dict[str, dict[str, Any]] = {}
    for option in options.severities:
        id_, _, word = option.partition("=")
        if id_ not in known:
            raise WrongOptionError(f"--severity: there is no rule {id_!r}{nearest(id_, known)}")
        level = "disabled" if word == _OFF else word
        if severity_of(level) is None:
            raise WrongOptionError(
                f"--severity {id_}: write mandatory, advisory or disabled (got {word!r})"
            )
        stated[id_] = {LEVEL: level}
    if options.budget is not None:
        stated.setdefault(BUDGET, {})["monthly"] = options.budget
    return configured(made, stated, "the options")


def prices(options: PolicyOptions, rules: Sequence[Rule]) -> PriceTable:
    """The price table: of `--prices`, else with the prices of the rule `budget`.

    Raises:
        WrongOptionError: the prices are wrong.
    """
    own = next(r.parameters for r in rules if r.id == BUDGET)
    try:
        if options.prices is None and isinstance(own, BudgetParameters) and own.prices:
            return price_table(own.prices)
        return price_table(options.prices)
    except PriceError as error:
        raise WrongOptionError(str(error)) from error
