"""A Usernetes cluster on hosts that are reached over SSH: a control plane, then workers side by side.

Owns: the node container of every host, membership, the kubeconfig. Deliberately does not own: hosts, their
drivers and rootless Docker (`RootlessHost`), anything inside the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.compat.usernetes_versions import VersionSet
from gpuclusters.core import scripts
from gpuclusters.usernetes.addresses import ApiAccess, NetworkPlan
from gpuclusters.usernetes.resource import UsernetesNode

OVERLAY = ("Dockerfile.gpu", "compose.yaml", "node-gpus.sh", "usernetes-gpus.service")
"""Files of `scripts/usernetes/overlay`, which lie beside upstream's on every host."""


@dataclass(frozen=True, kw_only=True)
class UsernetesHost:
    """One host; its name in the configuration is the name of its node too."""

    connection: HostConnection
    account: str
    """Who owns the node, and whose rootless Docker it runs in."""
    number: int
    """1 to 254, each once; decides the node's own network, and never follows the order of a list."""
    gpus: int
    host_ip: pulumi.Input[str] | None = None
    """At which the other hosts reach it; found on the host, as upstream does, if it is None."""
    after: pulumi.Resource | None = None
    """What must be done on the host before its node starts."""


@dataclass(frozen=True, kw_only=True)
class UsernetesClusterArgs:
    """What a cluster needs to know."""

    versions: VersionSet
    """Another tag or other ranges or ports make another cluster: change the name with them."""
    control_plane: UsernetesHost
    workers: Sequence[UsernetesHost] = ()
    network: NetworkPlan = field(default_factory=NetworkPlan)
    api: ApiAccess
    join_token_hours: float = 1
    """Longest life of a join token; each is deleted when its worker has joined."""
    schedule_on_control_plane: bool = True
    join_timeout_seconds: float = 900
    """From the start of kubeadm until the node is Ready."""
    build_timeout_seconds: float = 3600
    """For the node image, which every host builds for itself."""
    drain_timeout_seconds: float = 600
    """For pods to leave a node that is removed or disturbed; 0 leaves them where they are."""
    protect: bool = False
    """Whether Pulumi refuses to delete the control plane, whose volumes are the cluster."""


class UsernetesCluster(pulumi.ComponentResource):
    """All hosts of one cluster, each one resource named `<host>-node`."""

    kubeconfig: pulumi.Output[str]
    """Admin kubeconfig, known when the control plane is there. Secret."""
    nodes: Mapping[str, UsernetesNode]
    """By host."""

    def __init__(
        self, name: str, args: UsernetesClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:usernetes:UsernetesCluster", name, None, opts)
        first = args.control_plane
        control = self._node(name, args, first, None)
        made = {first.connection.host: control}
        for worker in args.workers:
            made[worker.connection.host] = self._node(name, args, worker, control)
        self.nodes = made
        # The control plane's alone: were it that of all nodes, whatever is in the cluster would seem to
        # change with every worker. Who needs them all depends on `nodes`.
        self.kubeconfig = pulumi.Output.secret(control.kubeconfig)
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def _node(
        self,
        name: str,
        args: UsernetesClusterArgs,
        host: UsernetesHost,
        control: UsernetesNode | None,
    ) -> UsernetesNode:
        first = args.control_plane
        more: dict[str, Any] = {}
        if control is not None:
            more = {
                "control": {
                    "connection": first.connection.as_input(),
                    "account": first.account,
                    "node_name": first.connection.host,
                    "host_ip": control.address,
                },
                "cluster_id": control.member_of,
            }
        return UsernetesNode(
            f"{host.connection.host}-node",
            connection=host.connection.as_input(),
            account=host.account,
            cluster=name,
            role="control-plane" if control is None else "worker",
            node_name=host.connection.host,
            number=host.number,
            host_ip=host.host_ip,
            source=_source(args.versions),
            container_toolkit=args.versions.container_toolkit,
            overlay={file: scripts.read(f"usernetes/overlay/{file}") for file in OVERLAY},
            network=args.network.model_dump(mode="json"),
            gpus=host.gpus,
            slirp4netns=args.versions.slirp4netns,
            schedule_on_control_plane=args.schedule_on_control_plane,
            api=args.api.model_dump(mode="json", exclude_none=True),
            join_token_hours=args.join_token_hours,
            join_timeout_seconds=args.join_timeout_seconds,
            build_timeout_seconds=args.build_timeout_seconds,
            drain_timeout_seconds=args.drain_timeout_seconds,
            opts=kept(
                after(host.after, control, opts=pulumi.ResourceOptions(parent=self)),
                protect=args.protect and control is None,
            ),
            **more,
        )


def _source(versions: VersionSet) -> dict[str, str]:
    if versions.usernetes_sha256 is None:
        raise pulumi.RunError(
            f"the digest of the archive of Usernetes {versions.usernetes} is not stated; download "
            f"{versions.archive_url}, look at it, and state what `sha256sum` prints as usernetes-sha256"
        )
    return {
        "tag": versions.usernetes,
        "location": versions.archive_url,
        "sha256": versions.usernetes_sha256,
        "kubernetes": versions.kubernetes,
    }
