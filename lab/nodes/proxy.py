"""kube-proxy of a node: makes the addresses of Services lead to their pods, by rules in the node's network.

The rules are made by iptables. A machine may have none: then that of the Debian package is used, by links in
the node's folder. Nothing is set outside of the node's network: of the table of connections, whose limits are
the whole machine's, kube-proxy is told to leave every setting as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.control_plane import pki
from lab.control_plane.commands import POD_RANGE
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.nodes.folder import RealNodeFolder

NAME = "kube-proxy"
TOOLS = ("kube-proxy", "iptables")
LISTENS = "127.0.0.1:10256"
"""Where it says that it works, in the node's network."""
_USER = "system:kube-proxy"
"""Every cluster binds the ClusterRole system:node-proxier to this name."""
_NOT_OURS = "service.kubernetes.io/service-proxy-name"
"""A Service with this label is left alone by every kube-proxy that does not have that name."""
_COMMANDS = tuple(
    f"{family}{suffix}"
    for family in ("iptables", "ip6tables")
    for suffix in ("", "-save", "-restore")
)
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def write(
    layout: Layout, folder: RealNodeFolder, address: str, port: int, tools: Mapping[str, Path]
) -> None:
    """All files that a node's kube-proxy starts from. `port` is the API server's on the node's loopback."""
    pki.issue(layout, _certificate(folder), pki.Client(NAME, _USER))
    _kubeconfig(folder).write_text(
        json.dumps(kubeconfig(NAME, port, folder.pki / "ca.crt", _certificate(folder)), indent=2)
    )
    _configuration(folder).write_text(
        json.dumps(configuration(folder, address, bridged=_BRIDGED.exists()), indent=2)
    )
    _link_iptables(folder, tools["iptables"])


def command(folder: RealNodeFolder, tools: Mapping[str, Path]) -> tuple[str, ...]:
    """The command line of a node's kube-proxy."""
    return (str(tools[NAME]), f"--config={_configuration(folder)}")


def configuration(folder: RealNodeFolder, address: str, *, bridged: bool) -> dict[str, Any]:
    """What kube-proxy is told.

    `bridged`: packets between pods on one bridge pass the rules too. Where the kernel cannot do that, an
    answer would bypass them and come from an address that nobody asked; then every connection to a Service
    is made in the node's name, and comes back through it.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": folder.name,
        "clientConnection": {"kubeconfig": str(_kubeconfig(folder))},
        "bindAddress": address,
        "healthzBindAddress": LISTENS,
        "metricsBindAddress": "127.0.0.1:10249",
        "clusterCIDR": POD_RANGE,
        "nodePortAddresses": ["primary"],
        # None would be a default of kube-proxy's own; zero leaves what the machine has.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s",
            "udpStreamTimeout": "0s",
        },
        "iptables": {"localhostNodePorts": False, "masqueradeAll": not bridged},
    }


def declare(api: KubeApi) -> None:
    """Have kube-proxy leave the Service `kubernetes` alone.

    Nodes serve its address themselves: the API server listens on the machine's loopback, which is no endpoint
    that a Service may have.
    """
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {_NOT_OURS: "gpu-clusters-lab"},
            },
        }
    )


def kubeconfig(user: str, port: int, authority: Path, certificate: Path) -> dict[str, Any]:
    """Who a program of a node is to the API server, which answers on the node's loopback."""
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    client = {
        "client-certificate": str(certificate),
        "client-key": str(certificate.with_suffix(".key")),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": server}],
        "users": [{"name": user, "user": client}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }


def _link_iptables(folder: RealNodeFolder, program: Path) -> None:
    """Programs are called by these names; where the machine has its own, those on its PATH are found."""
    unpacked = (program.parent / "origin").exists()
    for name in _COMMANDS:
        link = folder.plugins / name
        link.unlink(missing_ok=True)
        if unpacked:
            link.symlink_to(program)


def _certificate(folder: RealNodeFolder) -> Path:
    return folder.pki / f"{NAME}.crt"


def _kubeconfig(folder: RealNodeFolder) -> Path:
    return folder.path / f"{NAME}.kubeconfig"


def _configuration(folder: RealNodeFolder) -> Path:
    return folder.path / f"{NAME}.yaml"
