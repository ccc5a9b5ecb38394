"""What policy findings do to a review, and what else is told of machines."""

from __future__ import annotations

import pytest

from gpuclusters.core.codes import VALUE
from gpuclusters.policy.rule import Rule
from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import configured
from gpuclusters.providers.server import PROVIDERS
from gpuclusters.review import impact
from gpuclusters.review.cost import price_table
from gpuclusters.review.review import Finding, review
from tests.review.catalogue import handmade, loading
from tests.review.reviewing import plan, plan_of

KEPT = "gpu-clusters:gpu:"


def told(*steps: dict[str, object], rules: tuple[Rule, ...] = RULES) -> tuple[Finding, ...]:
    return review(plan(*steps), prices=price_table(), rules=rules).findings


@pytest.mark.parametrize(
    ("level", "verdict"), [("mandatory", "dangerous"), ("advisory", "needs a look")]
)
def test_a_budget_that_does_not_suffice_counts_as_the_rule_is_set(level: str, verdict: str) -> None:
    document = loading.document("machine-added-on-google-cloud")
    rules = configured(RULES, {"budget": {"enforcementLevel": level, "monthly": 3000}}, "test")
    found = review(plan_of(document), prices=price_table(), rules=rules)
    assert "over budget: 4,196 USD a month of 3,000" in found.reasons
    assert found.level.words == verdict
    enough = configured(RULES, {"budget": {"monthly": 5000}}, "test")
    assert review(plan_of(document), prices=price_table(), rules=enough).findings == ()


def test_what_costs_nobody_knows_what_is_refused_where_the_budget_says_so() -> None:
    machine = handmade.instance("v100-0", "mars-north1-a")
    step = handmade.step("create", handmade.INSTANCE, "v100-0", None, machine)
    rules = configured(RULES, {"budget": {"refuse-unknown": True}}, "test")
    (finding,) = told(step, rules=rules)
    assert "nobody knows what this costs: machine v100-0" in finding.says
    assert told(step) == ()


def test_the_table_of_effects_is_of_our_types_and_uses_words_that_there_are() -> None:
    table = impact.effects()
    ours = {type_.removeprefix(KEPT) for type_ in table if type_.startswith(KEPT)}
    assert ours <= PROVIDERS.keys()
    known = {"was", "will", "change", "changed", *vars(impact.Case)}
    said = [one.says for rows in table.values() for one in rows]
    assert {word for text in said for word in VALUE.findall(text)} <= known
