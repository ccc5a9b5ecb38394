"""Where things lie in the folder of real nodes."""

from dataclasses import dataclass
from pathlib import Path

from lab.files import At
from lab.server_process import ServerFolder

API = "api"
"""Socket that leads to the API server: namespaces of networks do not divide it."""
REGISTRY = "registry"
"""Socket of the registry."""
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

    pki = At("pki")
    """Its certificates and keys."""
    kubelet_configuration = At("kubelet.yaml")
    """The kubelet's configuration."""
    kubeconfig = At("kubeconfig")
    """Who the kubelet is."""
    containerd_configuration = At("containerd.toml")
    """The configuration of containerd."""
    networks = At("net.d")
    """Configurations of CNI."""
    plugins = At("bin")
    """Programs under the names by which others call them: CNI plugins, runc, the shim."""
    cdi = At("cdi")
    """CDI specifications of a node without a simulated host."""
    registries = At("registries")
    """Where containerd finds how to reach registries."""
    hardware = At("hardware")
    """What covers the machine's own processors and memory."""
    var_lib = At("var-lib")
    """The node's /var/lib: kubelet, containerd, cni."""
    var_log = At("var-log")
    """The node's /var/log."""
    boot = At("boot.json")
    """What its first process has to do."""

    def log(self, program: str) -> Path:
        """The log of one of its programs."""
        return self.path / f"{program}.log"


@dataclass(frozen=True, slots=True)
class NodesFolder(ServerFolder):
    specs = At("nodes.json")
    """What to run."""
    undo = At("undo.json")
    """What has to be removed from the machine; written before it is made."""
    numbers = At("numbers.json")
    """The number of each node, from which its address follows."""
    entrances = At("entrances.json")
    """The port of each entrance."""
    control = At("control")
    """Socket for requests."""

    def node(self, name: str) -> RealNodeFolder:
        return RealNodeFolder(self.path / name)
