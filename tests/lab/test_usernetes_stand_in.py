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
from lab.usernetes.faults import Fault
from lab.usernetes.server import inside, tell

GPUS = ("GPU-1", "GPU-2")
NODE = NodeState("a", True, GPUS, "nvidia", True, "worker", True)


@pytest.mark.parametrize(
    ("kind", "plugin", "pod"),
    [
        ("usernetes-runtime-not-default", None, None),
        ("usernetes-no-specification", "=all", "=GPU-1"),
        ("usernetes-names-by-index", None, "=GPU-1"),
        ("usernetes-stale-uuids", None, "=GPU-1"),
        ("usernetes-gpu-lost", None, None),
        ("usernetes-network-closed", None, None),
        ("usernetes-rank-dies", None, None),
    ],
)
def test_a_fault_changes_what_is_inside_its_node_alone(
    kind: str, plugin: str | None, pod: str | None
) -> None:
    fault: Fault = faults.parse(kind, {"node": "a"})
    found, other = inside(NODE, [fault]), inside(NODE, [faults.parse(kind, {"node": "b"})])
    assert other == InNode(GPUS, ("all", *GPUS), "nvidia", True)
    assert found != other
    for visible, missing in (("all", plugin), ("GPU-1", pod)):
        said = found.unresolvable(visible)
        assert (said is None) == (missing is None)
        assert missing is None or said is None or said.endswith(f"nvidia.com/gpu{missing}")


def test_a_node_that_does_not_run_or_has_no_gpus_set_up_offers_none() -> None:
    assert inside(NodeState("a", False, GPUS, "nvidia", True, "worker", True), []) == InNode()
    bare = inside(NodeState("a", True, (), "runc", False, "worker", True), [])
    assert (bare.names, bare.injects) == ((), False)


def test_what_is_told_is_read_again_and_told_once(tmp_path: Path) -> None:
    assert rootless.read(tmp_path) == {}
    told = {"a": inside(NODE, [])}
    assert tell(tmp_path, told)
    assert not tell(tmp_path, told)
    assert rootless.read(tmp_path) == told


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


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("r-0.reach", True),
        ("r-0.reach.ns.svc", True),
        ("r-0.reach.ns.svc.cluster.local.", True),
        ("r-0.reach.other", False),
        ("r-1.reach", False),
    ],
)
def test_names_of_pods_are_found_in_their_namespace(
    tmp_path: Path, asked: str, found: bool
) -> None:
    name = Name.of(
        {"metadata": {"namespace": "ns"}, "spec": {"hostname": "r-0", "subdomain": "reach"}}
    )
    assert name is not None
    cluster_dns.publish(tmp_path, name, "127.0.0.1", "b")
    network = Network(tmp_path, "a", "ns")
    if found:
        assert network.getaddrinfo(asked, 80)[0][4] == ("127.0.0.1", 80)
    else:
        with pytest.raises(socket.gaierror, match="not known"):
            network.getaddrinfo(asked, 80)
    cluster_dns.withdraw(tmp_path, name)
    with pytest.raises(socket.gaierror):
        network.getaddrinfo(asked, 80)
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
