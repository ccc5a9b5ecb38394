"""Usernetes on one folder of simulated hosts: the node containers, their volumes, and the clusters they make.

Kept in `<hosts>/usernetes.json`. A host has at most one node, as the compose project has one service.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.hosts.faults import read as faults_of
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.usernetes import usernetes_container

FILE = "usernetes.json"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
HOST_IP = "usernetes/host-ip"
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip-overwrite"
HOST = "gpu-clusters.dev/host"
"""Annotation that says on which simulated host a node is."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeState:
    """What runs in the node container of one host; an absent one has no name."""

    name: str
    """Name of the Kubernetes node."""
    running: bool
    """Whether the container runs, which it does only while the machine does."""
    gpus: tuple[str, ...]
    """UUIDs in the CDI specification of the node, `GPU-…`."""
    default_runtime: str
    """Default runtime of containerd in the node: `nvidia`, or `runc` before the GPUs are set up."""
    cdi_mode: bool
    """Whether NVIDIA's runtime in the node is in CDI mode."""
    role: str
    """`control-plane` or `worker`; empty before it has made or joined a cluster."""
    joined: bool
    """Whether the node belongs to a cluster whose control plane is the one that it joined."""


@dataclass(slots=True)
class Clusters:
    """All node containers and clusters of a folder; changes are written at once."""

    folder: Path

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    def read(self) -> Object:
        """Everything: `nodes` by host, `clusters` by id."""
        known: Object = read_json(self._file) or {"nodes": {}, "clusters": {}}
        return known

    @contextmanager
    def change(self) -> Iterator[Object]:
        """Everything, to be changed by one at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self.read()
            before = json.dumps(known)
            yield known
            if json.dumps(known) != before:
                write_json(self._file, known)
        finally:
            os.close(lock)

    def forget(self, host: str) -> None:
        """The disk of a host is another one: its container and its volumes are gone."""
        if self.node(host) is not None:
            with self.change() as known:
                known["nodes"].pop(host, None)

    def node(self, host: str) -> Object | None:
        """The node container of a host, or what its volumes keep of it."""
        found: Object | None = self.read()["nodes"].get(host)
        return found

    def cluster_of(self, host: str) -> Object | None:
        """The cluster that the node of a host has made or joined, while it is the same one."""
        known = self.read()
        node = known["nodes"].get(host)
        found: Object | None = known["clusters"].get(node["cluster"]) if node else None
        return found

    def serving_at(self, address: str) -> Object | None:
        """The cluster whose control plane answers at this address of a host."""
        known = self.read()
        for cluster in known["clusters"].values():
            node = known["nodes"].get(cluster["host"])
            if node and node["environment"].get("HOST_IP") == address and self.serves(cluster):
                found: Object = cluster
                return found
        return None

    def serves(self, cluster: Object) -> bool:
        node = self.node(cluster["host"])
        return bool(node and node["cluster"] == cluster["id"] and self.runs(cluster["host"], node))

    def is_up(self, host: str) -> bool:
        """Whether the node container of a host runs."""
        return self.runs(host, self.node(host))

    def runs(self, host: str, node: Object | None) -> bool:
        """Whether this node, the one of a host, runs."""
        machine = self._machine(host) if node else None
        if not node or machine is None or "power" in machine.state:
            return False
        return usernetes_container.is_running(machine, node)

    def settled(self, host: str) -> Object | None:
        """The node of a host as its unit has left it, also where the container has just started again."""
        node, machine = self.node(host), self._machine(host)
        if node is not None and machine is not None:
            usernetes_container.settle(machine, node, faults_of(machine.folder))
        return node

    def _machine(self, host: str) -> Machine | None:
        there = HostsFolder(self.folder).host(host)
        identity = read_json(there.identity)
        return Machine(there, board(identity["platform"])) if identity else None


def usernetes_node(folder: Path, host: str) -> NodeState:
    """What runs in the node container of a host.

    Args:
        folder: the folder of all hosts.
        host: name of the machine.
    """
    clusters = Clusters(folder)
    node = clusters.settled(host)
    if node is None:
        return NodeState("", False, (), "", False, "", False)  # noqa: FBT003
    cluster = clusters.cluster_of(host)
    return NodeState(
        name=node["name"],
        running=clusters.is_up(host),
        gpus=tuple(node["gpus"]),
        default_runtime=node["default_runtime"],
        cdi_mode=node["cdi_mode"],
        role=node["role"],
        joined=bool(cluster and node["name"] in cluster["nodes"]),
    )


def new_node(name: str, host: str, role: str, host_ip: str) -> Object:
    """The Node of a host that registers: kubeadm's and the entrypoint's labels, and the taints of both.

    `--cloud-provider=external` of upstream's entrypoint taints until `sync-external-ip`.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        HOST_IP: host_ip,
    }
    taints = [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]
    if role == "control-plane":
        labels |= {CONTROL_PLANE: "", "node.kubernetes.io/exclude-from-external-load-balancers": ""}
        taints.append({"key": CONTROL_PLANE, "effect": "NoSchedule"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {HOST: host}},
        "spec": {"taints": taints},
        "status": {"addresses": [{"type": "Hostname", "address": name}]},
    }


def sync(cluster: Object) -> str | None:
    """What upstream's `sync-external-ip.sh` does; answers what it says where it fails.

    It annotates without `--overwrite`, which kubectl refuses for another value.
    """
    for name, node in sorted(cluster["nodes"].items()):
        metadata = node["metadata"]
        host_ip = metadata["labels"].get(HOST_IP, "")
        others = [one for one in node["status"]["addresses"] if one["type"] != "ExternalIP"]
        node["status"]["addresses"] = [*others, {"type": "ExternalIP", "address": host_ip}]
        if metadata["annotations"].get(PUBLIC_IP, host_ip) != host_ip:
            return (
                "error: --overwrite is false but found the following declared annotation(s): "
                f"'{PUBLIC_IP}' of {name}"
            )
        metadata["annotations"][PUBLIC_IP] = host_ip
        node["spec"]["taints"] = [
            one for one in node["spec"]["taints"] if one["key"] != UNINITIALIZED
        ]
    return None
