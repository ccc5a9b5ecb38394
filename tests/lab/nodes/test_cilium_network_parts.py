"""What of Cilium as the network of real nodes can be tried without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import nodes
from lab.control_plane import NodeSpec
from lab.nodes import server
from lab.nodes.model import NodesError, NodesSpec
from lab.written import document, read
from tests.cilium import network


def lab(module: str) -> NodesSpec:
    return NodesSpec(Path("/lab"), (NodeSpec("a"),), (), network=module)


@pytest.mark.parametrize("module", [nodes.BRIDGE, network.__name__])
def test_the_process_that_holds_nodes_is_told_their_network(module: str) -> None:
    written = json.loads(json.dumps(document(lab(module))))
    assert read(NodesSpec, written).network == module


def test_another_network_is_another_process() -> None:
    why = server.must_restart(lab(nodes.BRIDGE), lab(network.__name__))
    assert why == "their network is to be tests.cilium.network"


def test_nodes_that_join_a_cluster_have_the_network_of_that_cluster(tmp_path: Path) -> None:
    with pytest.raises(NodesError, match="leave `joins` or `network` out"):
        nodes.start(
            tmp_path,
            nodes.NodesSpec(
                control_plane=tmp_path,
                nodes=(NodeSpec("a"),),
                joins=("a",),
                network=network.__name__,
            ),
        )
