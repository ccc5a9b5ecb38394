"""A Usernetes cluster on hosts that are reached over SSH: a control plane, workers side by side, their GPUs.

Owns of a host: its driver where that is ours, packages, files, account settings, the account's daemon. Of the
cluster: node containers, membership, kubeconfig, device plugin, runtime class, exporter, the wait for all
GPUs. Does not own: the machines, the accounts' data, what makes GPUs visible inside a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.node.v1 import RuntimeClass

from components.host_connection import HostConnection
from components.kubernetes_objects import after, kept
from gpuclusters.compat.usernetes_versions import VersionSet
from gpuclusters.core import scripts
from gpuclusters.driver.model import WantedDriver
from gpuclusters.driver.resource import GpuDriver
from gpuclusters.proof.nodes import DEFAULT_TIMEOUT_SECONDS
from gpuclusters.proof.resource import PluginGate
from gpuclusters.rootless.resource import RootlessHost as PreparedHost
from gpuclusters.usernetes import device_plugin as manifest
from gpuclusters.usernetes.addresses import ApiAccess, NetworkPlan
from gpuclusters.usernetes.resource import UsernetesNode

OVERLAY = ("Dockerfile.gpu", "compose.yaml", "node-gpus.sh", "usernetes-gpus.service")
"""Files of `scripts/usernetes/overlay`, which lie beside upstream's on every host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RootlessHostArgs:
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
        super().__init__("gpu-clusters:usernetes:RootlessHost", name, None, opts)
        host, child = args.connection.host, pulumi.ResourceOptions(parent=self)
        common: dict[str, Any] = {"connection": args.connection.as_input(), "gpus": args.gpus}
        driver = None
        if args.driver is not None:
            driver = GpuDriver(f"{host}-driver", opts=child, **common, **args.driver.inputs())
        prepared = PreparedHost(
            f"{host}-rootless",
            account=args.account,
            docker=args.versions.docker,
            container_toolkit=args.versions.container_toolkit,
            sudo=args.sudo,
            ports=sorted(args.ports),
            # The node is built from it, so that it is pulled anyway, and it is pinned.
            probe_image=args.versions.node_image,
            remove_data=args.remove_data,
            opts=after(driver, opts=child),
            **common,
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
        first, versions = args.control_plane, args.versions
        self._common: dict[str, Any] = {
            "cluster": name,
            "source": {
                "tag": versions.usernetes,
                "location": versions.archive_url,
                "sha256": versions.usernetes_sha256,
                "kubernetes": versions.kubernetes,
            },
            "container_toolkit": versions.container_toolkit,
            "overlay": {file: scripts.read(f"usernetes/overlay/{file}") for file in OVERLAY},
            "network": args.network.model_dump(mode="json"),
            "slirp4netns": versions.slirp4netns,
            "schedule_on_control_plane": args.schedule_on_control_plane,
            "api": args.api.model_dump(mode="json", exclude_none=True),
            "join_token_hours": args.join_token_hours,
            "join_timeout_seconds": args.join_timeout_seconds,
            "build_timeout_seconds": args.build_timeout_seconds,
            "drain_timeout_seconds": args.drain_timeout_seconds,
        }
        control = self._node(first, "control-plane", protect=args.protect)
        joins: dict[str, Any] = {
            "control": {
                "connection": first.connection.as_input(),
                "account": first.account,
                "node_name": first.connection.host,
                "host_ip": control.address,
            },
            "cluster_id": control.member_of,
        }
        self.nodes = {first.connection.host: control} | {
            worker.connection.host: self._node(worker, "worker", control, **joins)
            for worker in args.workers
        }
        # The control plane's alone: were it that of all nodes, whatever is in the cluster would seem to
        # change with every worker. Who needs them all depends on `nodes`.
        self.kubeconfig = pulumi.Output.secret(control.kubeconfig)
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def _node(
        self,
        host: UsernetesHost,
        role: str,
        earlier: UsernetesNode | None = None,
        *,
        protect: bool = False,
        **joins: Any,
    ) -> UsernetesNode:
        child = after(host.after, earlier, opts=pulumi.ResourceOptions(parent=self))
        return UsernetesNode(
            f"{host.connection.host}-node",
            connection=host.connection.as_input(),
            account=host.account,
            role=role,
            node_name=host.connection.host,
            number=host.number,
            host_ip=host.host_ip,
            gpus=host.gpus,
            opts=kept(child, protect=protect),
            **self._common,
            **joins,
        )


@dataclass(frozen=True, kw_only=True)
class GpuPluginArgs:
    cluster: str
    kubeconfig: pulumi.Input[str]
    versions: VersionSet
    nodes: Mapping[str, int]
    triggers: Sequence[pulumi.Input[str]] = ()
    """What makes the GPUs be waited for anew: which GPUs each node has."""
    metrics: bool = False
    """Whether the DCGM exporter runs too."""
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    """For the GPUs of all nodes together."""


class GpuPlugin(pulumi.ComponentResource):
    """There when every node offers its GPUs. The provider for the cluster comes with the options."""

    allocatable: pulumi.Output[Mapping[str, int]]

    def __init__(
        self, name: str, args: GpuPluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:usernetes:GpuPlugin", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        image = args.versions.device_plugin_image
        made: list[pulumi.Resource] = [
            RuntimeClass(
                f"{name}-runtime-class",
                metadata=manifest.runtime_class()["metadata"],
                handler=manifest.RUNTIME_CLASS,
                opts=child,
            ),
            DaemonSet(f"{name}-device-plugin", **_parts(manifest.device_plugin(image)), opts=child),
        ]
        if args.metrics:
            exporter = _parts(manifest.dcgm_exporter(args.versions.dcgm_exporter_image))
            service = _parts(manifest.exporter_service())
            made += [
                DaemonSet(f"{name}-exporter", **exporter, opts=child),
                Service(f"{name}-exporter-service", **service, opts=child),
            ]
        gate = PluginGate(
            f"{name}-gate",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            expected=dict(args.nodes),
            timeout_seconds=args.timeout_seconds,
            triggers=[image, args.versions.container_toolkit, *args.triggers],
            opts=after(*made, opts=child),
        )
        self.allocatable = gate.allocatable
        self.register_outputs({"allocatable": gate.allocatable})


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    return {part: document[part] for part in ("metadata", "spec")}
