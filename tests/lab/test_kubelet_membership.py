"""Nodes that are there only while their hosts have joined."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab.kubelet
from lab.control_plane import NodeSpec
from lab.hosts.folder import HostsFolder, write_json
from lab.hosts.rke2_cluster import DATA, Clusters, new_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import IMAGE
from tests.lab.test_kubelet_pods import eventually, pod_on, post

pytestmark = pytest.mark.lab


class Host:
    """A host that joins, stops and leaves, as its files say."""

    def __init__(self, hosts: Path, name: str) -> None:
        self.name = name
        self._folder = HostsFolder(hosts).host(name)
        self._clusters = Clusters(hosts)
        self._data = self._folder.root / DATA[1:] / "agent"

    def joins(self, **config: Any) -> None:
        self._data.mkdir(parents=True)
        self.is_("active")
        cluster = self._clusters.make(self.name, self.name, {"tls-san": [self.name]})
        cluster["nodes"][self.name] = new_node(self.name, self.name, "server", config)
        cluster["members"][self.name] = {"role": "server", "version": "v1", "node": self.name}
        self._clusters.save(cluster)

    def is_(self, active: str) -> None:
        write_json(self._folder.state, {"units": {"rke2-server.service": {"active": active}}})

    def leaves(self) -> None:
        shutil.rmtree(self._folder.root)


@pytest.fixture
def host(kube_api: KubeCluster, tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "hosts", f"joins-{secrets.token_hex(4)}")
    kubelets = tmp_path / "kubelet"
    lab.kubelet.start(
        kubelets,
        control_plane=kube_api.folder,
        nodes=[NodeSpec(host.name)],
        image=IMAGE,
        hosts=tmp_path / "hosts",
        joins=[host.name],
    )
    yield host
    lab.kubelet.stop(kubelets)
    with kube_api.api() as api:
        api.delete(f"/api/v1/nodes/{host.name}")


def test_a_node_comes_with_its_host_and_goes_with_it(
    kube_api: KubeCluster, host: Host, namespace: str, tmp_path: Path
) -> None:
    def played() -> list[str]:
        return [*lab.kubelet.status(tmp_path / "kubelet").nodes]

    def registered() -> list[dict[str, Any]]:
        with kube_api.api() as api:
            items: list[dict[str, Any]] = api.get("/api/v1/nodes")["items"]
        return [item for item in items if item["metadata"]["name"] == host.name]

    assert (played(), registered()) == ([], [])
    host.joins(**{"node-taint": ["a=b:NoSchedule"], "node-label": ["rack=r1"]})
    eventually(lambda: played() == [host.name])
    (node,) = registered()
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["metadata"]["labels"]["rack"] == "r1"
    # A kubelet that only stops leaves its node, and goes on with it.
    host.is_("inactive")
    eventually(lambda: played() == [])
    assert [item["metadata"]["uid"] for item in registered()] == [node["metadata"]["uid"]]
    host.is_("active")
    eventually(lambda: played() == [host.name])
    # One that leaves takes its pods along.
    with kube_api.api() as api:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        post(api, pods, pod_on(host.name))
        host.leaves()
        eventually(lambda: registered() == [])
        eventually(lambda: api.get(pods)["items"] == [])
