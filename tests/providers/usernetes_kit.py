"""A Usernetes cluster of simulated hosts: rootless Docker on each, one resource each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.hosts import usernetes_node
from lab.hosts.usernetes import usernetes_pki
from lab.hosts.usernetes.usernetes_cluster import Clusters, NodeState
from tests.fixtures.hosts import SimulatedHost
from tests.providers.cluster_kit import Nodes
from tests.providers.provider_process import INPUTS, ProviderProcess, inputs_of

GEN3 = "gen3-v20260902.0"
ACCOUNT = "operator"
OVERLAY = Path(__file__).resolve().parents[2] / "gpuclusters/usernetes/overlay"
GPUS = INPUTS["UsernetesNode"]["gpus"]


def prepare(host: SimulatedHost) -> None:
    """As the preparation of hosts leaves it."""
    script = Path(__file__).with_name("prepared_usernetes.sh").read_text()
    daemon = "XDG_RUNTIME_DIR=/run/user/1000 dockerd-rootless-setuptool.sh install"
    for done in (host.run("sudo -n sh", stdin=script), host.run(daemon)):
        assert done.returncode == 0, done.stderr


class Cluster(Nodes):
    """Hosts, and what each of them must be. The first is the control plane."""

    kind = "UsernetesNode"

    def __init__(self, hosts: Sequence[Any], provider: ProviderProcess) -> None:
        super().__init__(provider)
        self.hosts = list(hosts)
        self.first = self.hosts[0]

    def inputs(self, host: Any, **changes: Any) -> dict[str, Any]:
        values = inputs_of("UsernetesNode", host) | {
            "node_name": host.name,
            "number": self.hosts.index(host) + 1,
            "source": {
                "tag": GEN3,
                "location": f"https://sources.test/{GEN3}.tar.gz",
                "sha256": usernetes_pki.checksum(GEN3),
                "kubernetes": usernetes_pki.kubernetes(GEN3),
            },
            "overlay": {file.name: file.read_text() for file in sorted(OVERLAY.iterdir())},
        }
        if host is not self.first:
            outputs = self.kept[self.first.name].outputs
            values |= {
                "role": "worker",
                "control": {
                    "connection": self.first.connection,
                    "account": ACCOUNT,
                    "node_name": self.first.name,
                    "host_ip": outputs["address"],
                },
                "cluster_id": outputs["member_of"],
            }
        return {**values, **changes}

    def nodes(self) -> dict[str, Any]:
        """Nodes of the API, by name."""
        cluster = Clusters(self.first.folder).cluster_of(self.first.name)
        assert cluster is not None
        nodes: dict[str, Any] = cluster["nodes"]
        return nodes

    def runs(self, host: SimulatedHost) -> NodeState:
        """What runs on a host."""
        return usernetes_node(host.folder, host.name)


def targets(host: SimulatedHost) -> list[str]:
    """Targets of upstream's Makefile that were run on a host, in order."""
    return [entry["target"] for entry in host.journal("usernetes") if "target" in entry]
