"""Where things lie in the folder of real nodes.

<folder>/nodes.json         what to run; written by whoever starts it
<folder>/numbers.json       the number of each node, from which its address follows
<folder>/undo.json          what has to be removed from the machine; written before it is made
<folder>/ready.json         what runs; written when all nodes are Ready
<folder>/process.json       pid and start time of the process that holds the nodes
<folder>/server.log
<folder>/api                socket that leads to the API server: namespaces of networks do not divide it
<folder>/registry           socket of the registry
<folder>/port-<number>      socket that leads to a port of the machine's loopback
<folder>/entrances.json     ports of the machine that lead to Services
<folder>/control            socket on which the process takes requests
<folder>/<node>/            everything of one node
    pki, kubelet.yaml, kubeconfig, containerd.toml, net.d, bin
    cdi         /etc/cdi of a node without a simulated host
    hardware    what covers files of /proc and /sys
    off         it was switched off
    var-lib, var-log        what the node has as /var/lib and /var/log
    containerd.log, kubelet.log, kube-proxy.log, coredns.log
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.server_process import ServerFolder

API = "api"
REGISTRY = "registry"
DIAL = "dial"
"""In a node's folder: whoever connects says where to, and is in the node's network."""


def port_socket(port: int) -> str:
    """The name of the socket that leads to a port of the machine's loopback."""
    return f"port-{port}"


@dataclass(frozen=True, slots=True)
class RealNodeFolder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def pki(self) -> Path:
        """Its certificates and keys."""
        return self.path / "pki"

    @property
    def kubelet_configuration(self) -> Path:
        """The kubelet's configuration."""
        return self.path / "kubelet.yaml"

    @property
    def kubeconfig(self) -> Path:
        """Who the kubelet is."""
        return self.path / "kubeconfig"

    @property
    def containerd_configuration(self) -> Path:
        """The configuration of containerd."""
        return self.path / "containerd.toml"

    @property
    def networks(self) -> Path:
        """Configurations of CNI."""
        return self.path / "net.d"

    @property
    def plugins(self) -> Path:
        """Programs under the names by which others call them: CNI plugins, runc, the shim."""
        return self.path / "bin"

    @property
    def cdi(self) -> Path:
        """CDI specifications of a node without a simulated host."""
        return self.path / "cdi"

    @property
    def registries(self) -> Path:
        """Where containerd finds how to reach registries."""
        return self.path / "registries"

    @property
    def hardware(self) -> Path:
        """What covers the machine's own processors and memory."""
        return self.path / "hardware"

    @property
    def var_lib(self) -> Path:
        """The node's /var/lib: kubelet, containerd, cni."""
        return self.path / "var-lib"

    @property
    def var_log(self) -> Path:
        """The node's /var/log."""
        return self.path / "var-log"

    @property
    def boot(self) -> Path:
        """What its first process has to do."""
        return self.path / "boot.json"

    def log(self, program: str) -> Path:
        """The log of one of its programs."""
        return self.path / f"{program}.log"


@dataclass(frozen=True, slots=True)
class NodesFolder(ServerFolder):
    @property
    def specs(self) -> Path:
        """What to run."""
        return self.path / "nodes.json"

    @property
    def undo(self) -> Path:
        """What has to be removed from the machine."""
        return self.path / "undo.json"

    @property
    def numbers(self) -> Path:
        """The number of each node, from which its address follows."""
        return self.path / "numbers.json"

    @property
    def entrances(self) -> Path:
        """The port of each entrance."""
        return self.path / "entrances.json"

    @property
    def control(self) -> Path:
        """Socket for requests."""
        return self.path / "control"

    def node(self, name: str) -> RealNodeFolder:
        return RealNodeFolder(self.path / name)
