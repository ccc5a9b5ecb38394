"""Cilium as the network of real nodes' pods, as `lab.nodes` has one made: names come from pods there.

Agent, operator and CNI plugin are Cilium's own. Agent and operator run as pods in the node's file system, so
that the kubelet starts and asks them, and the operator judges by the pods, as on any cluster. Options are
those that Cilium's Helm chart gives, less what a lab has no use for: Hubble, Envoy, health checks of nodes
among each other, addresses of load balancers. The kinds of its policies are the operator's to make and to
judge: no played kubelet, which would judge them too, belongs into such a lab.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import yaml

from lab.control_plane import pki
from lab.control_plane.commands import POD_RANGE
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.images.names import BUSYBOX
from lab.kubeconfig import of_node
from lab.nodes import cgroups, dns, objects, proxy
from lab.nodes.doors import Doors
from lab.nodes.folder import RealNodeFolder
from lab.nodes.links import Switch
from lab.nodes.network import NetworkPlan
from lab.nodes.pod_network import Node, PodNetwork
from lab.tools import Report, ensure
from tests.cilium import programs as cilium_programs

CONFIGURATION = "coredns"
"""Name of the ConfigMap with the Corefile."""
_NAME = "cilium"
_USER = "gpu-clusters-cilium"
_LIBRARY = "/var/lib/cilium"
"""In a node: its agent writes beside the sources that it compiles, so that each node has its own."""
_GROUPS = "/run/cilium/cgroupv2"
"""In a node: the only group of processes at whose programs the agent looks, that of the node."""
_PINNED = "/sys/fs/bpf"
_PLUGIN = "cilium-cni"
_API_PORT = 6443
"""At an address of the nodes' network, where the API server is for Cilium: on no node."""
_TAINT = "node.cilium.io/agent-not-ready"
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


def _command(program: Path, part: str, **own: str) -> str:
    """A program with its options, as words of a pod."""
    text = Path(__file__).with_name("options.yaml").read_text()
    places = {"pod_range": POD_RANGE, "pinned": _PINNED, "groups": _GROUPS, "library": _LIBRARY}
    stated = yaml.safe_load(Template(text).substitute(places))
    values = {**stated["both"], **stated[part], **own}
    options = [f"--{name}={value}" for name, value in sorted(values.items())]
    return ", ".join(map(json.dumps, [str(program), *options]))


def _manifests(
    token: str, folder: Path, tools: Mapping[str, Path], address: str
) -> dict[str, Object]:
    """All of it by name. `folder` is that of the nodes, `address` the API server's in their network."""
    node = f"{folder}/$(K8S_NODE_NAME)"
    account = {"k8s-kubeconfig-path": f"{node}/{_NAME}.kubeconfig"}
    written = {"write-cni-conf-when-ready": f"{node}/net.d/05-cilium.conflist"}
    text = Template(Path(__file__).with_name("manifests.yaml").read_text()).substitute(
        agent=_command(tools["cilium-agent"], "agent", **account, **written),
        operator=_command(tools["cilium-operator"], "operator", **account),
        address=address,
        api_port=_API_PORT,
        busybox=BUSYBOX,
        coredns=tools["coredns"].parent,
        dns_port=dns.PORT,
        label=objects.LABEL,
        node=node,
        token=json.dumps(token),
        user=_USER,
    )
    read: dict[str, Object] = yaml.safe_load(text)
    return read


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
        await doors.serve(switch.pid, plan.api, _API_PORT)

    def write(self, layout: Layout, folder: RealNodeFolder, _address: str, port: int) -> None:
        """What a node has for it on its disk. `port` is the API server's on the node's loopback."""
        certificate = folder.pki / f"{_NAME}.crt"
        pki.issue(layout, certificate, pki.Client(_NAME, _USER))
        text = of_node(f"https://{LOOPBACK}:{port}", folder.pki / "ca.crt", certificate)
        (folder.path / f"{_NAME}.kubeconfig").write_text(text)
        for name in (_PLUGIN, "clang"):
            link = folder.plugins / name
            link.unlink(missing_ok=True)
            link.symlink_to(self._programs[name])
        own = folder.var_lib / Path(_LIBRARY).relative_to("/var/lib") / "bpf"
        shutil.rmtree(own, ignore_errors=True)
        shutil.copytree(self._sources, own)

    def mounts(self, cgroup: str) -> Mapping[str, tuple[str, ...]]:
        """What is mounted in a node whose group has this name: arguments of `mount`, by place."""
        found: dict[str, tuple[str, ...]] = {_PINNED: ("-t", "bpf", "bpf")}
        top = cgroups.MOUNT if cgroups.is_unified() else cgroups.MOUNT / "unified"
        # Without version 2 on the machine the agent mounts an empty one.
        if (top / "cgroup.procs").exists():
            found[_GROUPS] = ("--bind", str(top / cgroup))
        return found

    def declare(self, api: KubeApi) -> None:
        made = _manifests(self.token, self.folder, self._programs, self._address)
        proxy.await_kubernetes(api)
        # Everybody leads the Service `kubernetes`: labs that lead it themselves have written a label.
        nobody = {"metadata": {"labels": {proxy.NOT_OURS: None}}}
        api.request("PATCH", proxy.KUBERNETES, nobody, "application/merge-patch+json")
        for name in ("api-server", "rights", "agents", "operator"):
            api.apply(made[name])
        declare_names(api, made["names"])

    def configure(self, _folder: RealNodeFolder, _pods: str, /) -> bool:
        """The agent does it, once it serves pods."""
        return False

    def works(self, node: Node) -> bool:
        """Whether the operator says of it that its agent is up."""
        conditions = node.get("status", {}).get("conditions", [])
        said = any(
            c["type"] == "NetworkUnavailable" and c.get("reason") == "CiliumIsUp"
            for c in conditions
        )
        taints = [taint["key"] for taint in node["spec"].get("taints", [])]
        return objects.is_usable(node) and said and _TAINT not in taints

    def lead(self, _api: KubeApi, _addresses: Mapping[str, str], /) -> None:
        """The Service finds its pods by itself."""

    def log(self, folder: RealNodeFolder, /) -> Path | None:
        """The newest log of the node's agent."""
        found = folder.var_log.glob("pods/kube-system_cilium-*/cilium-agent/*.log")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)


def network(token: str, folder: Path) -> PodNetwork:
    return Cilium(token, folder)
