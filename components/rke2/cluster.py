"""An RKE2 cluster on hosts reached over SSH, for `rke2` and for `caas` with `kubernetes.source: rke2`.

Owns: RKE2 on every host, the tokens, the kubeconfig. Does not own: the hosts, their drivers, the fixed
registration address (a virtual IP, a load balancer or DNS), anything inside the cluster.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.component import Component, Told
from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.rke2 import host_config
from gpuclusters.rke2.host_config import Settings
from gpuclusters.rke2.model import Join, join_order
from gpuclusters.rke2.releases import Role
from gpuclusters.rke2.resource import Rke2Node, Rke2Tokens


@dataclass(frozen=True, kw_only=True)
class Rke2Host:
    """One host; its name in the configuration is the name of its node too."""

    connection: HostConnection
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[str] = ()
    """At the first registration only."""
    files: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """More files of this host, by path, which RKE2 reads when it starts; one may be a secret."""
    after: pulumi.Resource | None = None
    """What must be done on the host before RKE2 starts on it."""


class Rke2Cluster(Component, module="rke2"):
    """All hosts of one cluster, each one resource named `<host>-rke2`."""

    version: str
    """Release, like `v1.35.7+rke2r1`. Another one updates every host in place, servers first."""
    artifacts: Mapping[str, Any]
    """`source` (`download` or `folder`), `location`, `checksum` (of the release's own list), `images`."""
    settings: Settings
    servers: Sequence[Rke2Host]
    """1, 3 or 5; the first makes the cluster."""
    agents: Sequence[Rke2Host]
    agents_at_once: int = 10
    """How many agents may be on their way at the same time, joining or being upgraded."""
    server_token: pulumi.Input[str] | None = None
    """Made and kept in the state if it is None."""
    agent_token: pulumi.Input[str] | None = None
    join_timeout_seconds: int = 900
    drain_timeout_seconds: int = 600
    adopt: Collection[str] = ()
    """Hosts whose RKE2 may be there already: it is taken over, if it is as declared."""
    protect: bool = False
    """Whether Pulumi refuses to delete the servers, which have the etcd, and the tokens, which open it."""

    kubeconfig: pulumi.Output[str] = field(init=False)
    """Admin kubeconfig with the registration address; known when all servers have joined. Secret."""
    nodes: Mapping[str, Rke2Node] = field(init=False)

    def declare(self) -> Told:
        tokens = self._tokens()
        servers = {host.connection.host: host for host in self.servers}
        agents = {host.connection.host: host for host in self.agents}
        hosts, made = servers | agents, dict[str, Rke2Node]()
        for join in join_order([*servers], [*agents], self.agents_at_once):
            made[join.host] = self._node(join, hosts[join.host], made, tokens)
        self.nodes = made
        joined = [made[host].joined for host in servers]
        # Known when the last server is there, so that nobody builds on a cluster that still changes shape.
        self.kubeconfig = pulumi.Output.secret(
            pulumi.Output.all(made[next(iter(servers))].kubeconfig, *joined).apply(
                lambda all_: str(all_[0])
            )
        )
        return {"kubeconfig": self.kubeconfig}

    def _tokens(self) -> tuple[pulumi.Input[str], pulumi.Input[str]]:
        name = self._name
        if self.server_token is not None and self.agent_token is not None:
            return self.server_token, self.agent_token
        made = Rke2Tokens(
            f"{name}-tokens",
            cluster=name,
            # A token that is lost cannot be made again, and every snapshot is sealed with it.
            opts=kept(self.child, protect=self.protect),
        )
        return self.server_token or made.server, self.agent_token or made.agent

    def _node(
        self,
        join: Join,
        host: Rke2Host,
        made: Mapping[str, Rke2Node],
        tokens: tuple[pulumi.Input[str], pulumi.Input[str]],
    ) -> Rke2Node:
        settings, is_server = self.settings, join.role is Role.SERVER
        earlier = made[join.after] if join.after is not None else None
        return Rke2Node(
            f"{join.host}-rke2",
            connection=host.connection.as_input(),
            cluster=self._name,
            node_name=join.host,
            role=join.role.value,
            first=join.first,
            control=[
                server.connection.as_input()
                for server in self.servers
                if server.connection.host != join.host
            ],
            registration_address=settings.registration_address,
            version=self.version,
            artifacts=self.artifacts,
            config=host_config.config(
                settings,
                join.role,
                first=join.first,
                node_name=join.host,
                labels=host.labels,
                taints=host.taints,
            ),
            files={**host_config.files(settings, join.role), **host.files},
            labels=dict(host.labels),
            cis=settings.cis,
            selinux=settings.selinux,
            token=tokens[0] if is_server else tokens[1],
            agent_token=tokens[1] if is_server else None,
            join_timeout_seconds=self.join_timeout_seconds,
            drain_timeout_seconds=self.drain_timeout_seconds,
            adopt=join.host in self.adopt,
            opts=kept(
                after(host.after, earlier, opts=self.child),
                protect=self.protect and is_server,
            ),
        )
