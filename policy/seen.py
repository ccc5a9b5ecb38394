"""What the engine shows a policy, as our rules see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulumi_policy import PolicyResource, ResourceValidationArgs
from pulumi_policy.proxy import UnknownValueError

from gpuclusters.policy.rule import Rule
from gpuclusters.policy.rules import BudgetParameters
from gpuclusters.review.cost import Side, cost, price_table
from gpuclusters.review.plan import Action, Plan, Resource, Step
from gpuclusters.review.text import UNKNOWN, masked


def resource_of(seen: ResourceValidationArgs | PolicyResource) -> Resource:
    """A resource. Secrets are masked as in a review, so that no message can hold one."""
    props = masked(_plain(seen.props), seen.resource_type)
    return Resource(
        seen.resource_type,
        seen.name,
        props,
        props,
        bool(seen.opts.protect),
        seen.urn,
        _parent(seen),
    )


def _parent(seen: ResourceValidationArgs | PolicyResource) -> str:
    above = seen.parent.urn if isinstance(seen, PolicyResource) and seen.parent else ""
    return seen.opts.parent or above


def spending(resources: Sequence[Resource], rule: Rule) -> Side | None:
    """What they cost, for the rule that asks; None for every other."""
    parameters = rule.parameters
    if not isinstance(parameters, BudgetParameters):
        return None
    steps = tuple(Step(Action.CREATE, one.urn, None, one) for one in resources)
    table = price_table(parameters.prices or None)
    return cost(Plan("", "", {}, steps, {}), table).after


def _plain(value: Any) -> Any:
    """A value without the SDK's wrapping, which raises where something is not known yet."""
    if isinstance(value, Mapping):
        return {key: _plain(_known(value, key)) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(_known(value, index)) for index in range(len(value))]
    return value


def _known(holder: Any, key: Any) -> Any:
    try:
        return holder[key]
    except UnknownValueError:
        return UNKNOWN
