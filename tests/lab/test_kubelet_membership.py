"""Nodes that are there only while their hosts have joined."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab.kubelet
from lab.control_plane import NodeSpec
from lab.files import write_json
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.rke2.rke2_cluster import DATA, Clusters, new_node
from lab.hosts.usernetes import usernetes_cluster
from lab.pods import rootless
from lab.pods.rootless import InNode
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import IMAGE
from tests.fixtures.waiting import eventually
from tests.lab.test_kubelet_pods import pod_on, post

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
        lab.kubelet.KubeletSpec(
            control_plane=kube_api.folder,
            nodes=(NodeSpec(host.name),),
            image=IMAGE,
            hosts=tmp_path / "hosts",
            joins=(host.name,),
        ),
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


class RootlessHost(Host):
    """A host whose node is a container of an account's own Docker."""

    def __init__(self, hosts: Path, name: str) -> None:
        super().__init__(hosts, name)
        self._known = usernetes_cluster.Clusters(hosts)

    def joins(self, **config: Any) -> None:
        passwd = self._folder.root / "etc/passwd"
        passwd.parent.mkdir(parents=True)
        passwd.write_text("operator:x:1000:1000:operator:/home/operator:/bin/sh\n")
        write_json(self._folder.identity, {"platform": "plain-gpu-v100", "port": 1})
        self.is_("active")
        with self._known.change() as known:
            node = usernetes_cluster.new_node(self.name, self.name, "control-plane", "10.128.0.1")
            known["nodes"][self.name] = {
                "account": "operator",
                "cluster": "one",
                "environment": {"HOST_IP": "10.128.0.1"},
            }
            known["clusters"]["one"] = {
                "id": "one",
                "host": self.name,
                "cni": True,
                "nodes": {self.name: node},
            }

    def is_(self, active: str) -> None:
        machine = Machine(self._folder, board("plain-gpu-v100"))
        machine.state |= {
            "user-managers": {"operator": {"up": True}},
            "rootless": {
                "operator": {
                    "running": True,
                    "starts": 1,
                    "containers": {"usernetes-node": {"running": active == "active"}},
                }
            },
        }
        write_json(self._folder.state, machine.state)

    def syncs(self) -> None:
        with self._known.change() as known:
            usernetes_cluster.sync(known["clusters"]["one"])

    def leaves(self) -> None:
        with self._known.change() as known:
            known["nodes"].clear()
            known["clusters"].clear()


def test_a_node_in_a_container_is_told_what_its_own_cluster_is(
    kube_api: KubeCluster, tmp_path: Path
) -> None:
    host = RootlessHost(tmp_path / "hosts", f"joins-{secrets.token_hex(4)}")
    kubelets = tmp_path / "kubelet"
    lab.kubelet.start(
        kubelets,
        lab.kubelet.KubeletSpec(
            control_plane=kube_api.folder,
            nodes=(NodeSpec(host.name),),
            image=IMAGE,
            hosts=tmp_path / "hosts",
            joins=(host.name,),
        ),
    )

    def node() -> dict[str, Any] | None:
        with kube_api.api() as api:
            items: list[dict[str, Any]] = api.get("/api/v1/nodes")["items"]
        return next((item for item in items if item["metadata"]["name"] == host.name), None)

    def taints() -> set[str]:
        found = node() or {"spec": {}}
        return {taint["key"] for taint in found["spec"].get("taints") or ()}

    def external() -> list[str]:
        addresses = (node() or {"status": {}})["status"].get("addresses", ())
        return [one["address"] for one in addresses if one["type"] == "ExternalIP"]

    try:
        host.joins()
        eventually(lambda: usernetes_cluster.UNINITIALIZED in taints())
        host.syncs()
        eventually(lambda: external() == ["10.128.0.1"])
        assert usernetes_cluster.UNINITIALIZED not in taints()
        host.is_("inactive")
        eventually(lambda: list(lab.kubelet.status(kubelets).nodes) == [])
        # Where somebody tells what is inside of such nodes, it has to be told first: pods look once.
        write_json(kubelets / rootless.FILE, rootless.document({}))
        host.is_("active")
        time.sleep(1)
        assert not lab.kubelet.status(kubelets).nodes
        write_json(kubelets / rootless.FILE, rootless.document({host.name: InNode()}))
        eventually(lambda: list(lab.kubelet.status(kubelets).nodes) == [host.name])
        host.is_("inactive")
        eventually(lambda: list(lab.kubelet.status(kubelets).nodes) == [])
        host.leaves()
        eventually(lambda: node() is None)
    finally:
        lab.kubelet.stop(kubelets)
        with kube_api.api() as api:
            api.delete(f"/api/v1/nodes/{host.name}")
