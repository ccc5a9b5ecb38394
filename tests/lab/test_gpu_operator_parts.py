"""Parts of the lab's GPU Operator by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.gpu_operator import policy
from lab.gpu_operator.sharing import Sharing, balanced, devices, layouts, product
from lab.hosts import GpuState
from tests.fixtures.tables import beside

CASES = beside(__file__, "gpu_operator.yaml")


@pytest.mark.parametrize("row", CASES["offered"], ids=lambda row: str(row["counts"]))
def test_gpus_are_offered_whole_or_as_slices_or_shared(row: dict[str, Any]) -> None:
    machine = GpuState(**CASES["machine"] | row.get("machine", {}))
    sharing = Sharing()
    if "sharing" in row:
        sharing = Sharing.of(yaml.safe_dump({"sharing": row["sharing"]}))
    found = devices(machine, row["strategy"], sharing)
    assert {name: len(of) for name, of in found.items()} == row["counts"]
    assert product(machine, row["strategy"], sharing) == row["called"]


def test_layouts_are_the_named_ones_or_those_of_a_config_map() -> None:
    assert layouts("all-disabled", 2, "") == [{}]
    assert layouts("all-enabled", 2, "") == [{0: (), 1: ()}]
    assert layouts("all-1g.10gb", 1, "")[0] == {0: ("1g.10gb",) * 7}
    assert layouts("nonsense", 1, "") == []
    assert balanced(1, ["1g.10gb", "2g.20gb", "3g.40gb"]) == [
        {0: ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")}
    ]
    text = yaml.safe_dump(CASES["half"])
    assert layouts("half", 2, text) == [{1: ("3g.40gb", "3g.40gb")}]
    assert layouts("all-1g.10gb", 2, text) == []


@pytest.mark.parametrize("row", CASES["status"], ids=lambda row: row["reason"])
def test_ready_is_also_said_with_nothing_to_do(row: dict[str, Any]) -> None:
    how = {"has_nfd_labels": row["nfd"], "has_gpu_nodes": row["nodes"], "not_ready": row["waiting"]}
    found = policy.status({}, "gpu-operator", **how)
    holds = next(c for c in found["conditions"] if c["status"] == "True")
    assert (found["state"], holds["reason"]) == (row["state"], row["reason"])
    assert row["says"] in holds["message"]
