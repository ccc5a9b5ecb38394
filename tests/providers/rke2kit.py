"""An RKE2 cluster of simulated hosts, one resource each, in the order that the component declares."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gpuclusters.rke2 import host_config
from gpuclusters.rke2.model import Join, join_order
from gpuclusters.rke2.releases import Role
from gpuclusters.rke2.resource import Rke2NodeProvider
from lab.hosts.rke2 import rke2_release
from lab.hosts.rke2.rke2_cluster import Clusters
from tests.fixtures.hosts import SimulatedHost
from tests.providers.cluster_kit import Nodes
from tests.providers.provider_process import ProviderProcess

V35, V36, V37 = "v1.35.7+rke2r1", "v1.36.3+rke2r1", "v1.37.1+rke2r1"
SERVER_TOKEN, AGENT_TOKEN = "server-token-of-this-test", "agent-token-of-this-test"


class Cluster(Nodes):
    """Hosts, and what each of them must be."""

    kind = Rke2NodeProvider

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
            "connection": host.connection,
            "cluster": "test",
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
            "join_timeout_seconds": 240,
            **({"agent_token": AGENT_TOKEN} if is_server else {}),
            **changes,
        }

    def nodes(self) -> dict[str, Any]:
        """Nodes of the API, by name."""
        found = Clusters(self.servers[0].folder).at(self.address)
        assert found is not None
        nodes: dict[str, Any] = found["nodes"]
        return nodes

    def in_order(
        self, act: Callable[[SimulatedHost], object], agents_at_once: int
    ) -> Mapping[str, BaseException]:
        """Do this on every host, as an engine does: each after the one that it waits for.

        Returns the failures by host; a host behind one that failed is left alone.
        """
        names = [host.name for host in self.servers]
        order = join_order(names, [n for n in self.hosts if n not in names], agents_at_once)
        done: dict[str, Future[object]] = {}
        failures: dict[str, BaseException] = {}

        def step(join: Join) -> object:
            if join.after is not None:
                done[join.after].result()
            try:
                return act(self.hosts[join.host])
            except BaseException as error:
                failures[join.host] = error
                raise

        with ThreadPoolExecutor(max_workers=len(order)) as pool:
            for join in order:
                done[join.host] = pool.submit(step, join)
        return failures


class Poller:
    """Asks for the API at the registration address, all the time, and counts what it got."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.asked = self.refused = self.most_servers_down = self.most_agents_closed = 0

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        clusters = Clusters(self._cluster.servers[0].folder)
        servers = [host.name for host in self._cluster.servers]
        while not self._stop.is_set():
            # A look goes from one server to the next. Where two take turns meanwhile it finds both down,
            # or nobody who answers: what counts is what two looks find alike.
            found = clusters.at(self._cluster.address) or clusters.at(self._cluster.address)
            self.asked += 1
            self.refused += found is None
            down = _down(clusters, servers)
            while (again := _down(clusters, servers)) != down:
                down = again
            self.most_servers_down = max(self.most_servers_down, len(down))
            nodes = found["nodes"] if found else {}
            closed = [n for n, body in nodes.items() if body["spec"].get("unschedulable")]
            agents = len(set(closed) - set(servers))
            self.most_agents_closed = max(self.most_agents_closed, agents)
            time.sleep(0.005)


def _down(clusters: Clusters, servers: Sequence[str]) -> set[str]:
    return {name for name in servers if not clusters.is_up(name)}
