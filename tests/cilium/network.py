"""Cilium as the network of real nodes' pods, as `lab.nodes` has one made: names come from pods there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.nodes import dns, objects
from lab.nodes.doors import Doors
from lab.nodes.folder import RealNodeFolder
from lab.nodes.links import Switch
from lab.nodes.network import NetworkPlan
from lab.nodes.pod_network import Node, PodNetwork
from lab.tools import Report, ensure
from tests.cilium import agents
from tests.cilium import objects as cilium_objects
from tests.cilium import programs as cilium_programs

CONFIGURATION = "coredns"
"""Name of the ConfigMap with the Corefile."""
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


def declare_names(api: KubeApi, pods: Object) -> None:
    """All of it; a Corefile that is there already is left as it is."""
    service = dns.service()
    del service["spec"]["internalTrafficPolicy"]
    service["spec"]["selector"] = {"k8s-app": dns.SERVICE}
    account = {"name": dns.NAME, "namespace": dns.NAMESPACE}
    for manifest in (*dns.rights(), _core("ServiceAccount", account), service):
        api.apply(manifest)
    # What somebody has written into it is theirs.
    path = f"/api/v1/namespaces/{dns.NAMESPACE}/configmaps/{CONFIGURATION}"
    if api.request("GET", path)[0] == 404:
        metadata = {"name": CONFIGURATION, "namespace": dns.NAMESPACE}
        api.create(_core("ConfigMap", metadata, data={"Corefile": COREFILE}))
    api.apply(pods)


def _core(kind: str, metadata: Object, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


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
        made = cilium_objects.manifests(self.token, self.folder, self._programs, self._address)
        cilium_objects.declare(api, made)
        declare_names(api, made["names"])

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
