"""Plans made by hand for tests, and reviews of them with the prices that come with the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuclusters.policy.rules import RULES
from gpuclusters.review.cost import price_table
from gpuclusters.review.markdown import markdown
from gpuclusters.review.plan import Plan, read
from gpuclusters.review.review import Review, review
from tests.review.catalogue import handmade

GITHUB = 65_536


def plan_of(document: Mapping[str, Any]) -> Plan:
    return read(json.dumps(document), "plan.json")


def plan(*steps: dict[str, Any], **more: Any) -> Plan:
    return plan_of(handmade.plan(*steps, **more))


def reviewed(*steps: dict[str, Any], **more: Any) -> Review:
    return review(plan(*steps), prices=price_table(), rules=RULES, **more)


def comment(*reviews: Review, most: int = GITHUB) -> str:
    return markdown(reviews, key="test", most=most)
