"""The stand-in of rootless nodes: what it tells of a node, what faults make of it, how it comes and goes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import lab.usernetes
from lab.files import write_json
from lab.hosts import NodeState
from lab.pods import cluster_dns, rootless
from lab.pods.cluster_dns import Name
from lab.pods.in_pod import Network
from lab.pods.rootless import InNode
from lab.usernetes import faults
from lab.usernetes.__main__ import main
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


def test_faults_are_injected_by_name_and_a_wrong_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fault", str(tmp_path), "usernetes-gpu-lost", "node=a"]) == 0
    assert [fault.node for fault in faults.read(tmp_path)] == ["a"]
    assert main(["fault", str(tmp_path), "usernetes-nonsense"]) == 1
    assert "usernetes-nonsense" in capsys.readouterr().err
    assert main(["fault", str(tmp_path), "none"]) == 0
    assert faults.read(tmp_path) == []
    assert main(["nonsense"]) == 2
    assert "inject a fault" in capsys.readouterr().err


def test_it_starts_once_tells_and_stops(tmp_path: Path) -> None:
    folder, kubelets = tmp_path / "usernetes", tmp_path / "kubelet"
    kubelets.mkdir()
    (tmp_path / "hosts").mkdir()
    # Of an earlier life: a node that is gone is told of no more.
    write_json(kubelets / rootless.FILE, rootless.document({"old": InNode()}))
    try:
        first = lab.usernetes.start(folder, control_plane=tmp_path, hosts=tmp_path / "hosts")
        assert first.running
        again = lab.usernetes.start(folder, control_plane=tmp_path, hosts=tmp_path / "hosts")
        assert again.pid == first.pid
        assert rootless.read(kubelets) == {}
    finally:
        lab.usernetes.stop(folder)
    assert lab.usernetes.status(folder).detail == "not started"


def test_names_of_pods_are_found_in_their_namespace(tmp_path: Path) -> None:
    spec = {"hostname": "r-0", "subdomain": "reach"}
    name = Name.of({"metadata": {"namespace": "ns"}, "spec": spec})
    assert name is not None
    cluster_dns.publish(tmp_path, name, "127.0.0.1", "b")
    network = Network(tmp_path, "a", "ns")
    for asked in ("r-0.reach", "r-0.reach.ns.svc", "r-0.reach.ns.svc.cluster.local."):
        assert network.getaddrinfo(asked, 80)[0][4] == ("127.0.0.1", 80)
    for asked in ("r-0.reach.other", "r-1.reach"):
        with pytest.raises(socket.gaierror, match="not known"):
            network.getaddrinfo(asked, 80)
    cluster_dns.withdraw(tmp_path, name)
    with pytest.raises(socket.gaierror):
        network.getaddrinfo("r-0.reach", 80)
    assert network.getaddrinfo("127.0.0.1", 80)


def test_nothing_gets_to_pods_of_a_node_that_is_cut_off(tmp_path: Path) -> None:
    cluster_dns.publish(tmp_path, Name("ns", "r-0.reach"), "127.0.0.1", "b")
    tell(tmp_path, {"a": InNode(), "b": InNode(cut_off=True)})
    network = Network(tmp_path, "a", "ns")
    address = network.getaddrinfo("r-0.reach", 9)[0][4]
    with socket.socket() as own, pytest.raises(TimeoutError):
        network.connect(own, address)
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        Network(tmp_path, "b", "ns").getaddrinfo("r-0.reach", 9)
