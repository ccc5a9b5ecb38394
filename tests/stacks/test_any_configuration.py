"""For all configurations that are right: the stack can be previewed, and what it declares is sound."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from gpuclusters.config.stack import StackConfig, parse
from gpuclusters.fabric.table import TABLES, Baseboard, plan_layout
from tests.stacks.declaring import declared
from tests.unit.config.strategies import documents


# A whole program for each example: a failing one is shown as it was found, not made smaller for minutes.
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(documents(most_nodes=3))
def test_a_right_configuration_can_be_previewed(document: dict[str, Any]) -> None:
    config = parse(document)
    assert isinstance(config, StackConfig), config
    engine = declared(document, preview=True)

    names = [(r.type, r.name) for r in engine.seen]
    assert len(names) == len(set(names)), "two resources would have one URN"
    for inputs in engine.of(":FabricPartitions").values():
        table = TABLES[Baseboard(inputs["baseboard"])]
        if "layout" in inputs:
            cut = plan_layout(table, [int(size) for size in inputs["layout"]])
        else:
            cut = tuple(table.partition(int(number)) for number in inputs["partitions"])
        modules = [m for partition in cut for m in partition.modules]
        assert sorted(modules) == list(range(1, 9)), "each GPU is in exactly one partition"
    policies = engine.of(":TenancyPolicy").values()
    assert len(policies) == len(config.section.tenants)
    assert len({inputs["namespace"] for inputs in policies}) == len(policies)
