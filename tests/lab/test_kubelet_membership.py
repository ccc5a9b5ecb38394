"""Nodes that are there only while their hosts have joined."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.files import write_json
from lab.hosts.folder import HostsFolder
from lab.hosts.rke2.rke2_cluster import DATA, Clusters, new_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import Kubelets
from tests.fixtures.waiting import eventually
from tests.lab.test_kubelet_pods import pod_on, post

pytestmark = pytest.mark.lab


def test_a_node_comes_with_its_host_and_goes_with_it(
    kube_api: KubeCluster, kubelets: Kubelets, namespace: str, tmp_path: Path
) -> None:
    hosts, name = tmp_path / "hosts", f"joins-{secrets.token_hex(4)}"
    kubelet = kubelets(name, unique_already=True, hosts=hosts, joins=(name,))
    host = HostsFolder(hosts).host(name)

    def is_(active: str) -> None:
        write_json(host.state, {"units": {"rke2-server.service": {"active": active}}})

    def node() -> dict[str, Any] | None:
        with kube_api.api() as api:
            items: list[dict[str, Any]] = api.get("/api/v1/nodes")["items"]
        return next((item for item in items if item["metadata"]["name"] == name), None)

    assert kubelet.playing() == []
    assert node() is None
    (host.root / DATA[1:] / "agent").mkdir(parents=True)
    is_("active")
    cluster = Clusters(hosts).make(name, name, {"tls-san": [name]})
    config = {"node-taint": ["a=b:NoSchedule"], "node-label": ["rack=r1"]}
    cluster["nodes"][name] = new_node(name, name, "server", config)
    cluster["members"][name] = {"role": "server", "version": "v1", "node": name}
    Clusters(hosts).save(cluster)
    eventually(lambda: kubelet.playing() == [name])
    joined = node()
    assert joined is not None
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in joined["spec"]["taints"]
    assert joined["metadata"]["labels"]["rack"] == "r1"
    # A kubelet that only stops leaves its node, and goes on with it.
    is_("inactive")
    eventually(lambda: kubelet.playing() == [])
    assert (node() or {})["metadata"]["uid"] == joined["metadata"]["uid"]
    is_("active")
    eventually(lambda: kubelet.playing() == [name])
    # One that leaves takes its pods along.
    with kube_api.api() as api:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        post(api, pods, pod_on(name))
        shutil.rmtree(host.root)
        eventually(lambda: node() is None)
        eventually(lambda: api.get(pods)["items"] == [])
