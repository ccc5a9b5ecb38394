"""Realistic changes, each with the comment that it gets. Could you say yes or no from one alone?

The plans are previews of a caas stack that an earlier release recorded; `pytest --snapshot-update` makes the
comments anew.
"""

from __future__ import annotations

import random

import pytest
from syrupy.assertion import SnapshotAssertion

from gpuclusters.policy.rules import RULES
from gpuclusters.review.cost import price_table
from gpuclusters.review.plan import Plan
from gpuclusters.review.review import Review, review
from tests.review.catalogue import loading
from tests.review.reviewing import comment, plan_of


def judged(name: str) -> Review:
    return review(plan_of(loading.document(name)), prices=price_table(), rules=RULES)


@pytest.mark.parametrize("name", loading.names())
def test_a_realistic_change_gets_this_comment(name: str, snapshot: SnapshotAssertion) -> None:
    assert comment(judged(name)) == snapshot


def test_the_order_in_which_an_engine_tells_does_not_matter() -> None:
    document = loading.document("scale-in")
    expected = comment(judged("scale-in"))
    for seed in range(3):
        random.Random(seed).shuffle(document["steps"])
        plan: Plan = plan_of(document)
        assert comment(review(plan, prices=price_table(), rules=RULES)) == expected
