"""Cilium as the network of real nodes' pods, as `lab.nodes` has one made: names come from pods there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.images.names import BUSYBOX
from lab.nodes import dns, objects
from lab.nodes.doors import Doors
from lab.nodes.folder import RealNodeFolder
from lab.nodes.links import Switch
from lab.nodes.network import NetworkPlan
from lab.nodes.objects import LABEL
from lab.nodes.pod_network import Node, PodNetwork
from lab.tools import Report, ensure
from tests.cilium import agents
from tests.cilium import objects as cilium_objects
from tests.cilium import programs as cilium_programs

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


def declare_names(api: KubeApi, token: str, tools: Mapping[str, Path]) -> None:
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


@dataclass(slots=True)
class Cilium:
    """Cilium's agent on every node, names from pods."""

    token: str
    folder: Path
    replaces: tuple[str, ...] = (dns.NAME,)
    _programs: Mapping[str, Path] = field(default_factory=dict)
    _sources: Path = Path()
    _address: str = ""
    """The API server's among the nodes."""

    def programs(self, report: Report) -> Mapping[str, Path]:
        self._sources = cilium_programs.sources(report)
        self._programs = {**cilium_programs.ensure(report), **ensure(dns.TOOLS, report)}
        return self._programs

    async def open(self, switch: Switch, doors: Doors, plan: NetworkPlan) -> None:
        # Beside the bridge: from there pods are reached by their addresses.
        self._address = plan.api
        switch.answer_at(plan.api)
        await doors.serve(switch.pid, plan.api, cilium_objects.API_PORT)

    def write(self, layout: Layout, folder: RealNodeFolder, _address: str, port: int) -> None:
        agents.write(layout, folder, port, self._programs, self._sources)

    def mounts(self, cgroup: str) -> Mapping[str, tuple[str, ...]]:
        return agents.mounts(cgroup)

    def declare(self, api: KubeApi) -> None:
        cilium_objects.declare(api, self.token, self.folder, self._programs, self._address)
        declare_names(api, self.token, self._programs)

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


def network(token: str, folder: Path) -> PodNetwork:
    return Cilium(token, folder)
