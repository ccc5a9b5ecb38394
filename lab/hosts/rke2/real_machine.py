"""The real node that is one machine with a simulated host: where it is, and who stops and starts it.

`machine.json` in the host's folder says it; the server of `lab.nodes` writes it as soon as the node's
namespaces are there and removes it when they go. Without it a host is simulated throughout.
"""

from dataclasses import dataclass
from pathlib import Path

from lab.files import read_json
from lab.hosts.folder import HostFolder
from lab.hosts.model import HostsError
from lab.nodes import requests
from lab.nodes.folder import NodesFolder
from lab.nodes.model import NodesError

SSH_PORT, BMC_PORT = 22, 443
"""Where a machine of its own answers; only on loopback hosts need ports of their own."""


@dataclass(frozen=True, slots=True)
class RealMachine:
    """The node under a host. `pid` is its first process, `bmc_pid` one in the network of the bridge."""

    name: str
    pid: int
    address: str
    nodes: Path
    bmc_pid: int
    bmc_address: str

    def log(self, program: str) -> Path:
        """What one of the node's programs says."""
        return NodesFolder(self.nodes).node(self.name).log(program)


def read(host: HostFolder) -> RealMachine | None:
    """The node under a host as `machine.json` says; None: there is none."""
    said = read_json(host.machine)
    if said is None:
        return None
    bmc = said["bmc"]
    return RealMachine(
        host.name, said["pid"], said["address"], Path(said["nodes"]), bmc["pid"], bmc["address"]
    )


def control(nodes: Path, name: str, program: str, action: str) -> int | None:
    """Have a program of a node, or the `machine` itself, started or stopped; gives its process. It blocks.

    Raises:
        HostsError: nobody holds that node, or it could not be done.
    """
    try:
        return requests.control(nodes, name, program, action)
    except NodesError as error:
        raise HostsError(str(error)) from error


def state(nodes: Path, name: str, program: str) -> tuple[int | None, bool]:
    """The process of a program, and whether it is started again when it ends. It blocks.

    Raises:
        HostsError: nobody holds that node, or its programs have not begun.
    """
    try:
        found = requests.program_state(nodes, name, program)
    except NodesError as error:
        raise HostsError(str(error)) from error
    return found.pid, found.wanted
