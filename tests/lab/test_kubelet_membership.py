"""Nodes that are there only while their hosts have joined."""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lab.files import write_json
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.rke2.rke2_cluster import DATA, Clusters, new_node
from lab.hosts.usernetes import usernetes_cluster
from lab.pods import rootless
from lab.pods.rootless import InNode
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import Kubelets, KubeletStandIn
from tests.fixtures.waiting import eventually
from tests.lab.test_kubelet_pods import pod_on, post

pytestmark = pytest.mark.lab


class Host:
    """A host that joins, stops and leaves, as its files say, and the kubelets that look at it."""

    def __init__(self, hosts: Path, kubelets: Kubelets) -> None:
        self.name = f"joins-{secrets.token_hex(4)}"
        self.kubelet: KubeletStandIn = kubelets(
            self.name, unique_already=True, hosts=hosts, joins=(self.name,)
        )
        self._hosts = hosts
        self._folder = HostsFolder(hosts).host(self.name)

    def joins(self, **config: Any) -> None:
        (self._folder.root / DATA[1:] / "agent").mkdir(parents=True)
        self.is_("active")
        clusters = Clusters(self._hosts)
        cluster = clusters.make(self.name, self.name, {"tls-san": [self.name]})
        cluster["nodes"][self.name] = new_node(self.name, self.name, "server", config)
        cluster["members"][self.name] = {"role": "server", "version": "v1", "node": self.name}
        clusters.save(cluster)

    def is_(self, active: str) -> None:
        write_json(self._folder.state, {"units": {"rke2-server.service": {"active": active}}})

    def leaves(self) -> None:
        shutil.rmtree(self._folder.root)

    def node(self) -> dict[str, Any] | None:
        """As it is registered."""
        with self.kubelet.cluster.api() as api:
            items: list[dict[str, Any]] = api.get("/api/v1/nodes")["items"]
        return next((item for item in items if item["metadata"]["name"] == self.name), None)

    def is_played(self) -> bool:
        return self.kubelet.playing() == [self.name]


class RootlessHost(Host):
    """A host whose node is a container of an account's own Docker."""

    def joins(self, **config: Any) -> None:
        passwd = self._folder.root / "etc/passwd"
        passwd.parent.mkdir(parents=True)
        passwd.write_text("operator:x:1000:1000:operator:/home/operator:/bin/sh\n")
        write_json(self._folder.identity, {"platform": "plain-gpu-v100", "port": 1})
        self.is_("active")
        with usernetes_cluster.Clusters(self._hosts).change() as known:
            node = usernetes_cluster.new_node(self.name, self.name, "control-plane", "10.128.0.1")
            known["nodes"][self.name] = {
                "account": "operator",
                "cluster": "one",
                "environment": {"HOST_IP": "10.128.0.1"},
            }
            cluster = {"id": "one", "host": self.name, "cni": True, "nodes": {self.name: node}}
            known["clusters"]["one"] = cluster

    def is_(self, active: str) -> None:
        machine = Machine(self._folder, board("plain-gpu-v100"))
        containers = {"usernetes-node": {"running": active == "active"}}
        daemon = {"running": True, "starts": 1, "containers": containers}
        machine.state["user-managers"] = {"operator": {"up": True}}
        machine.state["rootless"] = {"operator": daemon}
        write_json(self._folder.state, machine.state)

    def syncs(self) -> None:
        with usernetes_cluster.Clusters(self._hosts).change() as known:
            usernetes_cluster.sync(known["clusters"]["one"])

    def leaves(self) -> None:
        with usernetes_cluster.Clusters(self._hosts).change() as known:
            known["nodes"].clear()
            known["clusters"].clear()


def test_a_node_comes_with_its_host_and_goes_with_it(
    kube_api: KubeCluster, kubelets: Kubelets, namespace: str, tmp_path: Path
) -> None:
    host = Host(tmp_path / "hosts", kubelets)
    assert not host.is_played()
    assert host.node() is None
    host.joins(**{"node-taint": ["a=b:NoSchedule"], "node-label": ["rack=r1"]})
    eventually(host.is_played)
    node = host.node()
    assert node is not None
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["metadata"]["labels"]["rack"] == "r1"
    # A kubelet that only stops leaves its node, and goes on with it.
    host.is_("inactive")
    eventually(lambda: not host.is_played())
    assert (host.node() or {})["metadata"]["uid"] == node["metadata"]["uid"]
    host.is_("active")
    eventually(host.is_played)
    # One that leaves takes its pods along.
    with kube_api.api() as api:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        post(api, pods, pod_on(host.name))
        host.leaves()
        eventually(lambda: host.node() is None)
        eventually(lambda: api.get(pods)["items"] == [])


def test_a_node_in_a_container_is_told_what_its_own_cluster_is(
    kubelets: Kubelets, tmp_path: Path
) -> None:
    host = RootlessHost(tmp_path / "hosts", kubelets)
    folder = host.kubelet.folder

    def taints() -> set[str]:
        found = host.node() or {"spec": {}}
        return {taint["key"] for taint in found["spec"].get("taints") or ()}

    def external() -> list[str]:
        addresses = (host.node() or {"status": {}})["status"].get("addresses", ())
        return [one["address"] for one in addresses if one["type"] == "ExternalIP"]

    host.joins()
    eventually(lambda: usernetes_cluster.UNINITIALIZED in taints())
    host.syncs()
    eventually(lambda: external() == ["10.128.0.1"])
    assert usernetes_cluster.UNINITIALIZED not in taints()
    host.is_("inactive")
    eventually(lambda: not host.is_played())
    # Where somebody tells what is inside of such nodes, it has to be told first: pods look once.
    write_json(folder / rootless.FILE, rootless.document({}))
    host.is_("active")
    time.sleep(1)
    assert not host.is_played()
    write_json(folder / rootless.FILE, rootless.document({host.name: InNode()}))
    eventually(host.is_played)
    host.is_("inactive")
    eventually(lambda: not host.is_played())
    host.leaves()
    eventually(lambda: host.node() is None)
