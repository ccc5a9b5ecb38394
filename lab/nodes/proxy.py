"""kube-proxy of a node: makes the addresses of Services lead to their pods, by rules in the node's network.

The rules are made by iptables. A machine may have none: then that of the Debian package is used, by links in
the node's folder. Nothing is set outside of the node's network: of the table of connections, whose limits are
the whole machine's, kube-proxy is told to leave every setting as it is.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from lab.control_plane import pki
from lab.control_plane.commands import POD_RANGE
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.kubeconfig import of_node
from lab.nodes.folder import RealNodeFolder

NAME = "kube-proxy"
TOOLS = ("kube-proxy", "iptables")
LISTENS = "127.0.0.1:10256"
"""Where it says that it works, in the node's network."""
_USER = "system:kube-proxy"
"""Every cluster binds the ClusterRole system:node-proxier to this name."""
NOT_OURS = "service.kubernetes.io/service-proxy-name"
"""A Service with this label is left alone by every kube-proxy that does not have that name."""
_COMMANDS = tuple(
    f"{family}{suffix}"
    for family in ("iptables", "ip6tables")
    for suffix in ("", "-save", "-restore")
)
KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"
_SECONDS = 60.0
_POLL_SECONDS = 0.05
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def write(layout: Layout, folder: RealNodeFolder, port: int, tools: Mapping[str, Path]) -> None:
    """All files that a node's kube-proxy starts from. `port` is the API server's on the node's loopback."""
    pki.issue(layout, _certificate(folder), pki.Client(NAME, _USER))
    _kubeconfig(folder).write_text(
        of_node(f"https://{LOOPBACK}:{port}", folder.pki / "ca.crt", _certificate(folder))
    )
    _link_iptables(folder, tools["iptables"])


def command(
    folder: RealNodeFolder, address: str, tools: Mapping[str, Path], *, bridged: bool | None = None
) -> tuple[str, ...]:
    """The command line of a node's kube-proxy, by default for the kernel of this machine.

    It gets no configuration file: it would watch it, and how many watches there are is limited for all of a
    machine's programs together.

    `bridged`: packets between pods on one bridge pass the rules too. Where the kernel cannot do that, an
    answer would bypass them and come from an address that nobody asked; then every connection to a Service
    is made in the node's name, and comes back through it.
    """
    if bridged is None:
        bridged = _BRIDGED.exists()
    return (
        str(tools[NAME]),
        "--proxy-mode=iptables",
        f"--kubeconfig={_kubeconfig(folder)}",
        f"--hostname-override={folder.name}",
        f"--bind-address={address}",
        f"--healthz-bind-address={LISTENS}",
        "--metrics-bind-address=127.0.0.1:10249",
        f"--cluster-cidr={POD_RANGE}",
        "--nodeport-addresses=primary",
        "--iptables-localhost-nodeports=false",
        f"--masquerade-all={'false' if bridged else 'true'}",
        # What is not said has a value that kube-proxy would set; zero leaves what the machine has.
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-udp-timeout=0s",
        "--conntrack-udp-timeout-stream=0s",
    )


def declare(api: KubeApi) -> None:
    """Have kube-proxy leave the Service `kubernetes` alone.

    Nodes serve its address themselves: the API server listens on the machine's loopback, which is no endpoint
    that a Service may have.
    """
    await_kubernetes(api)
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {NOT_OURS: "gpu-clusters-lab"},
            },
        }
    )


def await_kubernetes(api: KubeApi) -> None:
    """A cluster just started makes the Service a moment after it says that it is ready."""
    deadline = time.monotonic() + _SECONDS
    while api.request("GET", KUBERNETES)[0] == 404 and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


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
