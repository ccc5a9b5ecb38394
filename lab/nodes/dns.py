"""Names of the cluster: CoreDNS on every node, reached at one address, as pods of any cluster expect it.

It is a program of the node and no pod, so that it needs no image and no place: the Service `kube-dns` leads
each pod to the CoreDNS of its own node, and a node that is gone takes no other's names with it. Only the
cluster is known: the lab reaches nothing beyond, and every other name does not exist.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.control_plane import pki
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.kubeconfig import of_node
from lab.nodes.folder import RealNodeFolder

NAME = "coredns"
TOOLS = ("coredns",)
ADDRESS = "10.96.0.10"
"""Where pods ask: the usual place in a range of services."""
DOMAIN = "cluster.local"
PORT = 53
_USER = "system:coredns"
SERVICE = "kube-dns"
NAMESPACE = "kube-system"
_TTL_SECONDS = 5


def write(layout: Layout, folder: RealNodeFolder, address: str, port: int) -> None:
    """All files that a node's CoreDNS starts from. `port` is the API server's on the node's loopback."""
    certificate = folder.pki / f"{NAME}.crt"
    pki.issue(layout, certificate, pki.Client(NAME, _USER))
    text = of_node(f"https://{LOOPBACK}:{port}", folder.pki / "ca.crt", certificate)
    _kubeconfig(folder).write_text(text)
    _corefile(folder).write_text(corefile(_kubeconfig(folder), address))


def command(folder: RealNodeFolder, tools: Mapping[str, Path]) -> tuple[str, ...]:
    return (str(tools[NAME]), "-conf", str(_corefile(folder)))


def listens(address: str) -> str:
    """Where it answers, in the node's network."""
    return f"{address}:{PORT}"


def corefile(kubeconfig: Path, address: str) -> str:
    """What CoreDNS is told; the two servers share the address, the longest name decides."""
    zones = f"{DOMAIN} in-addr.arpa ip6.arpa"
    return f"""\
{zones} {{
    bind {address}
    errors
    kubernetes {zones} {{
        kubeconfig "{kubeconfig}"
        ttl {_TTL_SECONDS}
    }}
}}
. {{
    bind {address}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def declare(api: KubeApi) -> None:
    """What the cluster has of it: its rights and its Service."""
    for manifest in (*rights(), service()):
        api.apply(manifest)


def lead(api: KubeApi, token: str, nodes: Mapping[str, str]) -> None:
    """Have the Service lead to these nodes, addresses by name, of the lab with this token.

    Another lab of the same cluster has its own: none reaches the nodes of the other.
    """
    api.apply(endpoints(token, nodes))


def endpoints(token: str, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Where the Service leads: each node's pods to that node."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{SERVICE}-{token}",
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "gpu-clusters-lab",
            },
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [address], "nodeName": name, "conditions": {"ready": True}}
            for name, address in sorted(nodes.items())
        ],
        "ports": _ports(),
    }


def service() -> dict[str, Any]:
    """The Service under whose address pods ask; endpoints are not its own."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": SERVICE,
            "namespace": NAMESPACE,
            "labels": {"k8s-app": SERVICE, "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {
            "clusterIP": ADDRESS,
            "internalTrafficPolicy": "Local",
            "ports": _ports(),
        },
    }


def _ports() -> list[dict[str, Any]]:
    return [
        {"name": "dns", "port": PORT, "protocol": "UDP"},
        {"name": "dns-tcp", "port": PORT, "protocol": "TCP"},
    ]


def rights() -> list[dict[str, Any]]:
    """What CoreDNS may read, as a program of a node and as a pod of its account."""
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _USER},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["namespaces", "services"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _USER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": _USER,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _USER},
                {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE},
            ],
        },
    ]


def _kubeconfig(folder: RealNodeFolder) -> Path:
    return folder.path / f"{NAME}.kubeconfig"


def _corefile(folder: RealNodeFolder) -> Path:
    return folder.path / "Corefile"
