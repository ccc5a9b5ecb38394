"""The stand-in of rootless nodes: what it tells of a node, what faults make of it, how it comes and goes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lab.hosts import NodeState
from lab.pods import cluster_dns, rootless
from lab.pods.cluster_dns import Name
from lab.pods.in_pod import Network
from lab.pods.rootless import InNode
from lab.usernetes import faults
from lab.usernetes.server import inside, tell

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


def test_what_is_told_is_read_again_and_told_once(tmp_path: Path) -> None:
    assert rootless.read(tmp_path) == {}
    told = {"a": inside(NODE, [])}
    assert tell(tmp_path, told)
    assert not tell(tmp_path, told)
    assert rootless.read(tmp_path) == told
    # A node that does not run or has no GPUs set up offers none.
    assert inside(NodeState("a", False, GPUS, "nvidia", True, "worker", True), []) == InNode()
    bare = inside(NodeState("a", True, (), "runc", False, "worker", True), [])
    assert (bare.names, bare.injects) == ((), False)


def test_nothing_gets_to_pods_of_a_node_that_is_cut_off(tmp_path: Path) -> None:
    cluster_dns.publish(tmp_path, Name("ns", "r-0.reach"), "127.0.0.1", "b")
    tell(tmp_path, {"a": InNode(), "b": InNode(cut_off=True)})
    network = Network(tmp_path, "a", "ns")
    address = network.getaddrinfo("r-0.reach", 9)[0][4]
    with socket.socket() as own, pytest.raises(TimeoutError):
        network.connect(own, address)
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        Network(tmp_path, "b", "ns").getaddrinfo("r-0.reach", 9)
