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
from tests.review.reviewing import plan, plan_of, reviewed

KEPT = "gpu-clusters:gpu:"


def told(*steps: dict[str, object], rules: tuple[Rule, ...] = RULES) -> tuple[Finding, ...]:
    return review(plan(*steps), prices=price_table(), rules=rules).findings


def test_what_was_there_before_is_told_apart_from_what_is_new() -> None:
    board = f"{KEPT}FabricPartitions"
    steps = handmade.same(board, "old", {}), handmade.step("create", board, "new", None, {})
    assert [(f.name, f.new) for f in told(*steps)] == [("new", True), ("old", False)]
    off = configured(RULES, {"partition-protect": "disabled"}, "test")
    assert told(*steps, rules=off) == ()


def test_a_mandatory_finding_makes_a_change_dangerous() -> None:
    rule = {"sourceRanges": ["0.0.0.0/0"], "allows": [{"protocol": "tcp"}]}
    judged = reviewed(handmade.step("create", handmade.FIREWALL, "f", None, rule))
    assert judged.level.words == "dangerous"


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


def test_a_machine_that_looks_for_its_zone_is_counted_and_priced() -> None:
    machine = {
        "name": "v100-0",
        "zones": ["us-central1-a", "us-west1-b"],
        "machine_type": "n1-standard-8",
        "gpus": 1,
        "accelerator": {"type": "nvidia-tesla-v100", "count": 1},
        "disk": {"size_gib": 100},
    }
    pool = ("gpu-clusters:gcp:Pool", "pool")
    judged = reviewed(
        handmade.step("create", *pool, None, {}),
        handmade.step("create", f"{KEPT}GcpMachine", "v100-0", None, machine, parent=pool),
    )
    assert judged.cost.after.known == pytest.approx(
        8 * 0.031611 + 30 * 0.004237 + 2.48 + 100 * 0.10 / 730
    )
    assert judged.cost.after.unknown == ()
    (capacity,) = judged.capacities
    assert [(row.what, row.after) for row in capacity.rows] == [("machines", 1), ("GPUs", 1)]


def test_another_mig_layout_needs_the_gpus_free() -> None:
    old = {"cluster": "a100", "node": "gpu-01", "layout": "all-disabled", "evict": False}
    new = {**old, "layout": "all-1g.10gb"}
    step = handmade.step("update", f"{KEPT}MigLayout", "m", old, new, parent=handmade.GPU_STACK)
    judged = reviewed(*handmade.rke2(), step)
    (impact,) = judged.impacts
    assert (impact.machine, impact.gpus) == ("gpu-01", 8)
    assert "from all-disabled to all-1g.10gb" in impact.says


def test_a_node_that_drains_says_for_how_long_and_that_no_other_is_left() -> None:
    driver = {"version": "580.1", "drain_timeout_seconds": 1800}
    steps = []
    for name in ("gpu-01", "gpu-02"):
        old = {**driver, "connection": {"host": name}, "gpus": 8}
        new = {**old, "version": "580.2"}
        steps.append(handmade.step("update", f"{KEPT}GpuDriver", f"{name}-driver", old, new))
    both = reviewed(*steps)
    assert "the node is drained (for 30 min at most)" in both.impacts[0].says
    assert not any("one after the other" in reason for reason in reviewed(steps[0]).reasons)


def test_the_table_of_effects_is_of_our_types_and_uses_words_that_there_are() -> None:
    table = impact.effects()
    ours = {type_.removeprefix(KEPT) for type_ in table if type_.startswith(KEPT)}
    assert ours <= PROVIDERS.keys()
    known = {"was", "will", "change", "changed", *vars(impact.Case)}
    said = [one.says for rows in table.values() for one in rows]
    assert {word for text in said for word in VALUE.findall(text)} <= known
