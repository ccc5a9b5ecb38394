"""A machine out of service is a resource beside the others, and changes none of them."""

from __future__ import annotations

import json
from typing import Any

from gpuclusters.config.stack import read_stack_file
from tests.stacks.declaring import PROJECT, declared


def test_maintenance_adds_one_resource_and_changes_no_other() -> None:
    keys = read_stack_file(PROJECT / "Pulumi.dev.yaml")
    assert isinstance(keys, dict)
    before = declared(keys, preview=True)
    section: dict[str, Any] = keys["caas"]
    section["nodes"][1]["maintenance"] = "evict"
    after = declared(keys, preview=True)

    new = {r.name for r in after.seen} - {r.name for r in before.seen}
    assert new == {"hgx-02-maintenance"}
    (inputs,) = after.of(":NodeMaintenance").values()
    assert (inputs["node"], inputs["drain"]) == ("hgx-02", "evict")
    same = {r.name: shown(r.inputs) for r in after.seen if r.name not in new}
    assert same == {r.name: shown(r.inputs) for r in before.seen}


def shown(inputs: dict[str, Any]) -> str:
    """Inputs to compare; one unknown is as good as another."""
    return json.dumps(inputs, sort_keys=True, default=lambda value: type(value).__name__)
