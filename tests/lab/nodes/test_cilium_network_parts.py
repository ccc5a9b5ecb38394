"""What of Cilium as the network of real nodes can be tried without any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from lab import nodes
from lab.control_plane import NodeSpec
from lab.control_plane.kube import KubeApi
from lab.nodes import cgroups, dns, server
from lab.nodes.model import NodesError, NodesSpec
from lab.written import document, read
from tests.cilium import agents, network, objects
from tests.cilium.programs import PROGRAMS

FOLDER = Path("/lab/nodes")
TOOLS = {name: Path(f"/tools/{name}/{name}") for name in (*PROGRAMS, *dns.TOOLS)}


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


def test_an_agent_keeps_to_its_node() -> None:
    told = dict(option[2:].split("=", 1) for option in agents.agent("/nodes/a"))
    assert told["cgroup-root"] == agents.GROUPS
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
    assert agents.mounts("group-of-a")[agents.GROUPS] == ("--bind", str(top / "group-of-a"))


def node(reason: str, *taints: str) -> dict[str, Any]:
    return {
        "spec": {"taints": [{"key": key} for key in taints]},
        "status": {"conditions": [{"type": "NetworkUnavailable", "reason": reason}]},
    }


def test_a_network_works_once_the_operator_says_so() -> None:
    assert objects.is_up(node("CiliumIsUp"))
    assert not objects.is_up(node("CiliumIsUp", objects.TAINT))
    assert not objects.is_up(node("RouteCreated"))
    assert not objects.is_up({"spec": {}})


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


def test_an_agent_runs_on_every_node() -> None:
    api = _Api()
    objects.declare(cast("KubeApi", api), "token", FOLDER, TOOLS, "100.64.0.2")
    agent = next(made for made in api.applied if made["kind"] == "DaemonSet")
    assert agent["metadata"]["labels"] == {"k8s-app": "cilium"}


def test_names_come_from_pods_that_policies_can_select() -> None:
    api = _Api()
    network.declare_names(cast("KubeApi", api), "token", TOOLS)
    made = {manifest["kind"]: manifest for manifest in api.applied}
    pods = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Service"]["spec"]["selector"] == pods == {"k8s-app": "kube-dns"}
    assert "internalTrafficPolicy" not in made["Service"]["spec"]
