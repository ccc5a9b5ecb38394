"""What of Cilium as the network of real nodes can be tried without any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from lab import nodes
from lab.control_plane import NodeSpec
from lab.control_plane.kube import KubeApi
from lab.nodes import cgroups, cilium, cilium_objects, dns, pod_network, server
from lab.nodes.model import NodesError, NodesSpec
from lab.tools.catalogue import FOR_CILIUM, FOR_NODES

FOLDER = Path("/lab/nodes")
TOOLS = {name: Path(f"/tools/{name}/{name}") for name in (*cilium.TOOLS, *dns.TOOLS)}


def lab(network: str) -> NodesSpec:
    return NodesSpec(Path("/lab"), (NodeSpec("a"),), (), network=network)


@pytest.mark.parametrize("network", [nodes.BRIDGE, nodes.CILIUM])
def test_the_process_that_holds_nodes_is_told_their_network(network: str) -> None:
    written = json.loads(json.dumps(lab(network).document()))
    assert NodesSpec.of(written).network == network


def test_another_network_is_another_process() -> None:
    why = server.must_restart(lab(nodes.BRIDGE), lab(nodes.CILIUM))
    assert why == "their network is to be cilium"


def test_only_who_asks_for_cilium_needs_its_programs() -> None:
    assert not FOR_CILIUM & set(nodes.tools_for(nodes.BRIDGE))
    assert set(nodes.tools_for(nodes.CILIUM)) >= FOR_CILIUM
    assert FOR_CILIUM < FOR_NODES


def test_a_network_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodesError, match=r"no network 'calico'; there are bridge, cilium"):
        nodes.start(tmp_path, control_plane=tmp_path, nodes=[NodeSpec("a")], network="calico")


def test_nodes_that_join_a_cluster_have_the_network_of_that_cluster(tmp_path: Path) -> None:
    with pytest.raises(NodesError, match="leave `joins` or `network` out"):
        nodes.start(
            tmp_path,
            control_plane=tmp_path,
            nodes=[NodeSpec("a")],
            joins=["a"],
            network=nodes.CILIUM,
        )


def test_an_agent_keeps_to_its_node() -> None:
    told = dict(option[2:].split("=", 1) for option in cilium.agent("/nodes/a"))
    assert told["cgroup-root"] == cilium.GROUPS
    assert told["lib-dir"].startswith("/var/lib/")
    assert told["write-cni-conf-when-ready"].startswith("/nodes/a/")
    assert told["kube-proxy-replacement"] == "false"
    assert told["enable-l7-proxy"] == "true"


@pytest.mark.parametrize("version_2_alone", [True, False])
def test_an_agent_sees_the_group_of_its_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_2_alone: bool
) -> None:
    top = tmp_path if version_2_alone else tmp_path / "unified"
    top.mkdir(exist_ok=True)
    (top / "cgroup.procs").touch()
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    monkeypatch.setattr(cgroups, "is_unified", lambda: version_2_alone)
    assert cilium.mounts("group-of-a")[cilium.GROUPS] == ("--bind", str(top / "group-of-a"))


def node(reason: str, *taints: str) -> dict[str, Any]:
    return {
        "spec": {"taints": [{"key": key} for key in taints]},
        "status": {"conditions": [{"type": "NetworkUnavailable", "reason": reason}]},
    }


def test_a_network_works_once_the_operator_says_so() -> None:
    assert cilium_objects.is_up(node("CiliumIsUp"))
    assert not cilium_objects.is_up(node("CiliumIsUp", cilium_objects.TAINT))
    assert not cilium_objects.is_up(node("RouteCreated"))
    assert not cilium_objects.is_up({"spec": {}})


class _Api:
    """Remembers what it was told."""

    def __init__(self, **found: Any) -> None:
        self.found = found
        self.patched: dict[str, Any] = {}
        self.applied: list[dict[str, Any]] = []

    def get(self, _path: str) -> dict[str, Any]:
        return self.found

    def request(self, method: str, path: str, body: Any = None, _: str = "") -> tuple[int, bytes]:
        if method == "PATCH":
            self.patched[path.rsplit("/", 1)[-1]] = body
        return 200, b""

    def apply(self, manifest: dict[str, Any]) -> None:
        self.applied.append(manifest)


def test_policies_are_judged_by_the_operator_alone() -> None:
    rules = [{"apiGroups": [""]}, {"apiGroups": ["cilium.io"]}]
    api = _Api(rules=rules)
    cilium_objects.declare(cast("KubeApi", api), "token", FOLDER, TOOLS, "100.64.0.2")
    assert api.patched["gpu-clusters-kwok"] == {"rules": [{"apiGroups": [""]}]}
    agent = next(made for made in api.applied if made["kind"] == "DaemonSet")
    assert agent["metadata"]["labels"] == {"k8s-app": "cilium"}


def test_names_come_from_pods_that_policies_can_select() -> None:
    api = _Api()
    pod_network.declare(cast("KubeApi", api), "token", TOOLS)
    made = {manifest["kind"]: manifest for manifest in api.applied}
    pods = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Service"]["spec"]["selector"] == pods == {"k8s-app": "kube-dns"}
    assert "internalTrafficPolicy" not in made["Service"]["spec"]
