"""A Usernetes cluster on hosts that are reached over SSH: a control plane, then workers side by side.

Owns of a host, before the cluster: its driver where that is ours, packages, files, account settings, the
account's daemon. Owns of the cluster: the node container of every host, membership, the kubeconfig.
Deliberately does not own: the machines, the accounts' data, anything inside the cluster.
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
from gpuclusters.driver.model import WantedDriver
from gpuclusters.driver.resource import GpuDriver
from gpuclusters.rootless.resource import RootlessHost as PreparedHost
from gpuclusters.usernetes.addresses import ApiAccess, NetworkPlan
from gpuclusters.usernetes.resource import UsernetesNode

OVERLAY = ("Dockerfile.gpu", "compose.yaml", "node-gpus.sh", "usernetes-gpus.service")
"""Files of `scripts/usernetes/overlay`, which lie beside upstream's on every host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RootlessHostArgs:
    """What one host is."""

    connection: HostConnection
    account: str
    """Whom the daemon and all containers belong to."""
    gpus: int
    driver: WantedDriver | None
    """None: the host has one, and it is checked alone."""
    versions: VersionSet
    sudo: bool
    """False: an administrator prepares the host; what is missing is said with its commands."""
    ports: Sequence[int] = ()
    """TCP ports that its node publishes."""
    remove_data: bool = False
    """Whether a removal deletes the account's images and volumes too."""


class RootlessHost(pulumi.ComponentResource):
    """Resources `<host>-driver`, where the driver is ours, and `<host>-rootless`."""

    facts: pulumi.Output[Mapping[str, Any]]
    """`uid`, `home`, `runtime_directory`, `docker_host`, and the versions that run."""

    def __init__(
        self, name: str, args: RootlessHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Refused: a driver to be installed on a host that an administrator prepares."""
        super().__init__("gpu-clusters:usernetes:RootlessHost", name, None, opts)
        host, child = args.connection.host, pulumi.ResourceOptions(parent=self)
        wanted, driver = args.driver, None
        if wanted is not None:
            if not args.sudo:
                raise pulumi.RunError(
                    f"{host}: an administrator prepares it, so that its driver is installed already; write "
                    "driver.source: installed"
                )
            driver = GpuDriver(
                f"{host}-driver",
                connection=args.connection.as_input(),
                gpus=args.gpus,
                opts=child,
                **wanted.inputs(),
            )
        prepared = PreparedHost(
            f"{host}-rootless",
            connection=args.connection.as_input(),
            account=args.account,
            gpus=args.gpus,
            docker=args.versions.docker,
            container_toolkit=args.versions.container_toolkit,
            sudo=args.sudo,
            ports=sorted(args.ports),
            # The node is built from it, so that it is pulled anyway, and it is pinned.
            probe_image=args.versions.node_image,
            remove_data=args.remove_data,
            opts=after(driver, opts=child),
        )
        self.facts = prepared.facts
        self.register_outputs({"facts": self.facts, "gpu_uuids": prepared.gpu_uuids})


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
        asked = {
            "connection": first.connection.as_input(),
            "account": first.account,
            "node_name": first.connection.host,
        }
        more: dict[str, Any] = {}
        if control is not None:
            more["control"] = {**asked, "host_ip": control.address}
            more["cluster_id"] = control.member_of
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
