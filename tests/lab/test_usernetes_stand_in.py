"""The stand-in of rootless nodes: what it tells of a node, what faults make of it, how it comes and goes."""

from __future__ import annotations

import pytest

from lab.hosts import NodeState
from lab.pods.rootless import InNode
from lab.usernetes import faults
from lab.usernetes.server import inside

GPUS = ("GPU-1", "GPU-2")
NODE = NodeState("a", True, GPUS, "nvidia", True, "worker", True)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("runtime-not-default", ""),
        ("no-specification", "all GPU-1"),
        ("names-by-index", "GPU-1"),
        ("stale-uuids", "GPU-1"),
        ("gpu-lost", ""),
        ("network-closed", ""),
        ("rank-dies", ""),
    ],
)
def test_a_fault_changes_what_is_inside_its_node_alone(kind: str, missing: str) -> None:
    here, there = (faults.parse(f"usernetes-{kind}", {"node": node}) for node in ("a", "b"))
    found = inside(NODE, [here])
    assert inside(NODE, [there]) == InNode(GPUS, ("all", *GPUS), "nvidia", True) != found
    for visible in ("all", "GPU-1"):
        said = found.unresolvable(visible) or ""
        assert said.endswith(f"nvidia.com/gpu={visible}") == (visible in missing.split()), said
