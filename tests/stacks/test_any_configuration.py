"""For all configurations that are right: the stack can be previewed, and what it declares is sound."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from gpuclusters.config.stack import StackConfig, parse
from gpuclusters.domain.fabric import TABLES, Baseboard
from tests.stacks.declaring import declared
from tests.unit.config.strategies import documents


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents(most_nodes=3))
def test_a_right_configuration_can_be_previewed(document: dict[str, Any]) -> None:
    config = parse(document, file="Pulumi.test.yaml")
    assert isinstance(config, StackConfig), config
    engine = declared(document, preview=True)

    names = [(r.type, r.name) for r in engine.seen]
    assert len(names) == len(set(names)), "two resources would have one URN"
    for inputs in engine.of(":FabricPartitions").values():
        table = TABLES[Baseboard(inputs["baseboard"])]
        modules = [m for n in inputs["partitions"] for m in table.partition(int(n)).modules]
        assert sorted(modules) == list(range(1, 9)), "each GPU is in exactly one partition"
    policies = engine.of(":TenancyPolicy").values()
    assert len(policies) == len(config.caas.tenants)
    assert len({inputs["namespace"] for inputs in policies}) == len(policies)
