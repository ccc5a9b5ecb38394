"""Whether a node serves, by what the API server says of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.lease.placement import NOT_READY, UNREACHABLE, Outage, Why, outage_of, outages

SINCE = "2026-11-22T15:04:05Z"


def node(
    ready: str | None = "True",
    *,
    cordoned: bool = False,
    taints: tuple[str, ...] = (),
    since: str | None = SINCE,
) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        condition = {"type": "Ready", "status": ready}
        conditions.append(condition | ({"lastTransitionTime": since} if since else {}))
    spec: dict[str, Any] = {"unschedulable": True} if cordoned else {}
    if taints:
        spec["taints"] = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("body", "why", "message"),
    [
        (None, Why.GONE, "the cluster has no node n"),
        (node("False"), Why.NOT_READY, f"n is NotReady since {SINCE}"),
        (node("Unknown"), Why.NOT_READY, f"n is NotReady since {SINCE}"),
        (node("Unknown", since=None), Why.NOT_READY, "n is NotReady"),
        (node(None), Why.NOT_READY, "n is NotReady"),
        ({"metadata": {"name": "n"}}, Why.NOT_READY, "n is NotReady"),
        (node(taints=(UNREACHABLE,)), Why.NOT_READY, f"n has the taint {UNREACHABLE}"),
        (node(taints=("other", NOT_READY)), Why.NOT_READY, f"n has the taint {NOT_READY}"),
        (node("Unknown", cordoned=True), Why.NOT_READY, f"n is NotReady since {SINCE}"),
        (node(cordoned=True), Why.CORDONED, "n is cordoned"),
    ],
)
def test_a_node_that_does_not_serve_says_why(
    body: dict[str, Any] | None, why: Why, message: str
) -> None:
    found = outage_of("n", body)
    assert found == Outage(why, message)
    assert found.lost is (why is not Why.CORDONED)


@given(
    ready=st.sampled_from(["True", "False", "Unknown", None]),
    cordoned=st.booleans(),
    since=st.sampled_from([SINCE, None]),
    taints=st.sets(st.sampled_from([UNREACHABLE, NOT_READY, "nvidia.com/gpu"])),
)
def test_a_node_serves_exactly_if_it_is_ready_and_nobody_keeps_pods_away(
    ready: str | None, cordoned: bool, since: str | None, taints: set[str]
) -> None:
    body = node(ready, cordoned=cordoned, since=since, taints=tuple(sorted(taints)))
    found = outage_of("n", body)
    there = ready == "True" and not taints & {UNREACHABLE, NOT_READY}
    assert (found is None) is (there and not cordoned)
    # Only of a node that is there something is known.
    assert (found is not None and found.lost) is not there


def test_nodes_that_nobody_asks_for_do_not_matter_and_those_that_are_missing_do() -> None:
    found = outages(["a", "b", "c"], {"a": node(), "b": node("Unknown"), "stranger": node("False")})
    assert {name: outage.why for name, outage in found.items()} == {
        "b": Why.NOT_READY,
        "c": Why.GONE,
    }
