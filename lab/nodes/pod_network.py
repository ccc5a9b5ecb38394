"""The network of the pods, in both kinds: what a cluster has for it, what a node is told, when it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.control_plane.kube import KubeApi
from lab.files import write_atomic
from lab.images.names import BUSYBOX
from lab.nodes import cilium_objects, configuration, dns, objects, proxy
from lab.nodes.folder import RealNodeFolder
from lab.nodes.objects import LABEL

CONFIGURATION = "coredns"
"""Name of the ConfigMap with the Corefile."""
_LABELS = {"k8s-app": dns.SERVICE}
_PROGRAMS = "/programs"
_REPLICAS = 2
_ZONES = f"{dns.DOMAIN} in-addr.arpa ip6.arpa"
COREFILE = f"""\
{_ZONES} {{
    errors
    kubernetes {_ZONES} {{
        ttl 5
    }}
}}
. {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
"""What it is told: it knows the cluster, and every other name does not exist."""

Object = dict[str, Any]


def declare(api: KubeApi, token: str, tools: Mapping[str, Path]) -> None:
    """All of it; a Corefile that is there already is left as it is."""
    for manifest in (*dns.rights(), _account(), _service()):
        api.apply(manifest)
    # What somebody has written into it is theirs.
    if (
        api.request("GET", f"/api/v1/namespaces/{dns.NAMESPACE}/configmaps/{CONFIGURATION}")[0]
        == 404
    ):
        api.create(_configuration())
    api.apply(_pods(token, tools["coredns"].parent))


def _account() -> Object:
    metadata = {"name": dns.NAME, "namespace": dns.NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _service() -> Object:
    made = dns.service()
    del made["spec"]["internalTrafficPolicy"]
    made["spec"]["selector"] = _LABELS
    return made


def _configuration() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGURATION, "namespace": dns.NAMESPACE},
        "data": {"Corefile": COREFILE},
    }


def _pods(token: str, programs: Path) -> Object:
    container = {
        "name": dns.NAME,
        "image": BUSYBOX,
        "command": [f"{_PROGRAMS}/coredns", "-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"tcpSocket": {"port": dns.PORT}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "programs", "mountPath": _PROGRAMS, "readOnly": True},
            {"name": "configuration", "mountPath": "/etc/coredns", "readOnly": True},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": dns.NAME, "namespace": dns.NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    "serviceAccountName": dns.NAME,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": {LABEL: token},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                    "volumes": [
                        {"name": "programs", "hostPath": {"path": str(programs)}},
                        {"name": "configuration", "configMap": {"name": CONFIGURATION}},
                    ],
                },
            },
        },
    }


Node = dict[str, Any]


class PodNetwork(Protocol):
    """What a network of pods does while nodes join."""

    def declare(self, api: KubeApi) -> None:
        """Have the cluster have what it needs."""

    def configure(self, folder: RealNodeFolder, pods: str, /) -> bool:
        """Tell a node the range of its pods; whether that is news to it."""

    def works(self, node: Node) -> bool:
        """Whether pods of a node that is Ready have their network."""

    def lead(self, api: KubeApi, addresses: Mapping[str, str], /) -> None:
        """Have names come from these nodes, addresses by name."""

    def log(self, folder: RealNodeFolder, /) -> Path | None:
        """Where the network of a node says why it does not work."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge on every node, names from a program of every node; policies are not enforced."""

    token: str

    def declare(self, api: KubeApi) -> None:
        """The Services `kubernetes` and `kube-dns`."""
        proxy.declare(api)
        dns.declare(api)

    def configure(self, folder: RealNodeFolder, pods: str, /) -> bool:
        file = folder.networks / "10-lab.conflist"
        # A machine that was made anew has lost it.
        told, wanted = file.exists() and file.read_text(), configuration.network(pods)
        if told == wanted:
            return False
        write_atomic(file, wanted.encode())
        return True

    def works(self, node: Node) -> bool:
        return objects.is_usable(node)

    def lead(self, api: KubeApi, addresses: Mapping[str, str], /) -> None:
        """Lead the Service of names to the programs of these nodes."""
        dns.lead(api, self.token, addresses)

    def log(self, _folder: RealNodeFolder, /) -> Path | None:
        """It has none."""
        return None


@dataclass(frozen=True, slots=True)
class Cilium:
    """Cilium's agent on every node, names from pods; `address` is the API server's among the nodes."""

    token: str
    folder: Path
    programs: Mapping[str, Path]
    address: str

    def declare(self, api: KubeApi) -> None:
        cilium_objects.declare(api, self.token, self.folder, self.programs, self.address)
        declare(api, self.token, self.programs)

    def configure(self, _folder: RealNodeFolder, _pods: str, /) -> bool:
        """The agent does it, once it serves pods."""
        return False

    def works(self, node: Node) -> bool:
        return objects.is_usable(node) and cilium_objects.is_up(node)

    def lead(self, _api: KubeApi, _addresses: Mapping[str, str], /) -> None:
        """The Service finds its pods by itself."""

    def log(self, folder: RealNodeFolder, /) -> Path | None:
        """The newest log of the node's agent."""
        found = folder.var_log.glob("pods/kube-system_cilium-*/cilium-agent/*.log")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)
