"""Three servers and four agents, made by an `up` that is killed again and again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.hosts import journal
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.killing import ENDS, STARTS, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]

GPU = {"gpu": {"product": "a100-sxm4-80gb", "count": 8}}
SERVERS = ["cp-01", "cp-02", "cp-03"]
POOLS: list[dict[str, Any]] = [
    {"name": "whole", "nodes": ["gpu-01", "gpu-02"], **GPU},
    {"name": "sliced", "nodes": ["gpu-03"], **GPU, "mig": "all-3g.40gb"},
    {"name": "plain", "nodes": ["worker-01"]},
]
OFFERED = {"gpu-01": "8", "gpu-02": "8", "gpu-03": "16"}


def when(run: int) -> tuple[str, int]:
    """By turns: steps have just ended, components (which end at once) among them; or some have begun."""
    return (ENDS, 5 + run % 3) if run % 3 else (STARTS, 7)


def test_a_killed_up_of_three_servers_and_four_agents_converges(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with checkout(tmp_path_factory.mktemp("killr")) as dev:
        dev.only("rke2")
        dev.configure("rke2", servers=SERVERS, pools=POOLS, registration_address="127.0.0.1")
        kills = up_through_kills(dev, when)
        assert kills >= 3, "too few kills to have met every part of the up"
        _is_whole(dev)


def _is_whole(dev: Checkout) -> None:
    if dev.plan():
        dev.up()
    assert dev.plan("--refresh") == []
    resources = dev.state()
    assert [urn for urn, n in Counter(r["urn"] for r in resources).items() if n > 1] == []
    nodes = {node["metadata"]["name"]: node for node in dev.kubectl("get", "nodes")["items"]}
    assert set(nodes) == {*SERVERS, *OFFERED, "worker-01"}
    for name, node in nodes.items():
        offered = node["status"]["allocatable"].get("nvidia.com/gpu")
        assert offered == OFFERED.get(name), name
        assert journal.read(dev.lab / "hosts", name, "harm") == []
