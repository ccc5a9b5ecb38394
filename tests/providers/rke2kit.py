"""An RKE2 cluster of simulated hosts, one resource each."""

from collections.abc import Sequence
from typing import Any

from gpuclusters.rke2 import host_config
from gpuclusters.rke2.releases import Role
from lab.hosts.rke2 import rke2_release
from lab.hosts.rke2.rke2_cluster import Clusters
from tests.fixtures.hosts import SimulatedHost
from tests.providers.cluster_kit import Nodes
from tests.providers.provider_process import ProviderProcess, inputs_of

V35, V36 = "v1.35.7+rke2r1", "v1.36.3+rke2r1"
SERVER_TOKEN, AGENT_TOKEN = "server-token-of-this-test", "agent-token-of-this-test"


class Cluster(Nodes):
    """Hosts, and what each of them must be."""

    kind = "Rke2Node"

    def __init__(
        self, hosts: Sequence[SimulatedHost], provider: ProviderProcess, *, servers: int = 1
    ) -> None:
        super().__init__(provider)
        self.hosts = {host.name: host for host in hosts}
        self.servers = list(hosts[:servers])
        self.address = f"{hosts[0].name}.test"

    def inputs(self, host: SimulatedHost, **changes: Any) -> dict[str, Any]:
        first, is_server = host is self.servers[0], host in self.servers
        role = Role.SERVER if is_server else Role.AGENT
        version = changes.get("version", V35)
        settings = host_config.Settings(
            registration_address=self.address, cis=changes.get("cis", False)
        )
        return {
            **inputs_of("Rke2Node", host),
            "node_name": host.name,
            "role": role.value,
            "first": first,
            "control": [one.connection for one in self.servers if one is not host],
            "registration_address": self.address,
            "version": version,
            "artifacts": {
                "source": "download",
                "location": "https://releases.test",
                "checksum": rke2_release.checksum(version),
            },
            "config": host_config.config(settings, role, first=first, node_name=host.name),
            "files": host_config.files(settings, role),
            "token": SERVER_TOKEN if is_server else AGENT_TOKEN,
            **({"agent_token": AGENT_TOKEN} if is_server else {}),
            **changes,
        }

    def nodes(self) -> dict[str, Any]:
        """Nodes of the API, by name."""
        found = Clusters(self.servers[0].folder).at(self.address)
        assert found is not None
        nodes: dict[str, Any] = found["nodes"]
        return nodes
