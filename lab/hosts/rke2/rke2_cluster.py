"""The RKE2 clusters of one folder of simulated hosts: their tokens, members and nodes.

Kept in `<hosts>/rke2.json`. A cluster is found by its registration address, as an agent finds it by name.
"""

from dataclasses import dataclass
from pathlib import Path

from lab.files import read_json, write_json
from lab.hosts.folder import HostsFolder
from lab.hosts.kubectl import Object, parse_taint

FILE = "rke2.json"
DATA = "/var/lib/rancher/rke2"
KUBECTL = "rke2-kubectl-stand-in"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@dataclass(slots=True)
class Clusters:
    """All clusters of a folder; changes are written at once."""

    folder: Path

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    def all(self) -> dict[str, Object]:
        known: dict[str, Object] = read_json(self._file) or {}
        return known

    def save(self, cluster: Object) -> None:
        write_json(self._file, {**self.all(), cluster["id"]: cluster})

    def make(self, host: str, node: str, config: Object) -> Object:
        """The cluster that this host's first start makes; in place of one that it made before."""
        cluster: Object = {
            "id": f"{host}/{node}",
            "token": config.get("token", ""),
            "agent-token": config.get("agent-token", config.get("token", "")),
            "names": list(config.get("tls-san", [])),
            "shared": shared(config),
            "members": {},
            "nodes": {},
            "passwords": {},
        }
        others = {
            known: body
            for known, body in self.all().items()
            if known != cluster["id"] and not set(body["names"]) & set(cluster["names"])
        }
        write_json(self._file, {**others, cluster["id"]: cluster})
        return cluster

    def of_host(self, host: str) -> Object | None:
        """The cluster that a host is a member of, and still has the data of."""
        for cluster in self.all().values():
            if host in cluster["members"] and self.has_data(host):
                return cluster
        return None

    def at(self, address: str) -> Object | None:
        """The cluster of a registration address, if any of its servers runs."""
        for cluster in self.all().values():
            if address in cluster["names"] and self.serving(cluster):
                return cluster
        return None

    def serving(self, cluster: Object) -> bool:
        """Whether the API of a cluster answers somewhere."""
        return any(
            self.is_up(host)
            for host, member in cluster["members"].items()
            if member["role"] == "server"
        )

    def is_up(self, host: str) -> bool:
        """Whether RKE2 runs on a host."""
        state = read_json(HostsFolder(self.folder).host(host).state) or {}
        units: Object = state.get("units", {})
        return self.has_data(host) and any(
            units.get(f"rke2-{role}.service", {}).get("active") == "active"
            for role in ("server", "agent")
        )

    def has_data(self, host: str) -> bool:
        """Whether the host still has what it joined with; an uninstallation takes it away."""
        return (HostsFolder(self.folder).host(host).root / DATA[1:] / "agent").is_dir()


def shared(config: Object) -> Object:
    """What all servers must agree on ("critical configuration value mismatch")."""
    keys = (
        "agent-token",
        "cluster-cidr",
        "service-cidr",
        "cluster-dns",
        "cluster-domain",
        "disable-kube-proxy",
    )
    return {key: config.get(key) for key in keys}


def new_node(name: str, host: str, role: str, config: Object) -> Object:
    """The Node of a host that registers; labels and taints of its configuration count here alone."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **{
            key: value
            for key, _, value in (one.partition("=") for one in config.get("node-label", []))
        },
    }
    if role == "server":
        labels |= {CONTROL_PLANE: "true", "node-role.kubernetes.io/etcd": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"gpu-clusters.dev/host": host},
        },
        "spec": {"taints": [parse_taint(taint) for taint in config.get("node-taint", [])]},
        "status": {"conditions": [], "nodeInfo": {}},
    }
