"""A Usernetes cluster on hosts that are reached over SSH: a control plane, workers side by side, their GPUs.

Owns of a host: its driver where that is ours, packages, files, account settings, the account's daemon. Of the
cluster: node containers, membership, kubeconfig, device plugin, runtime class, exporter, the wait for all
GPUs. Does not own: the machines, the accounts' data, what makes GPUs visible inside a node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.node.v1 import RuntimeClass

from components.component import Component, Told
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


class RootlessHost(Component, module="usernetes"):
    """Resources `<host>-driver`, where the driver is ours, and `<host>-rootless`."""

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

    facts: pulumi.Output[Mapping[str, Any]] = field(init=False)
    """`uid`, `home`, `runtime_directory`, `docker_host`, and the versions that run."""

    def declare(self) -> Told:
        child = self.child
        host = self.connection.host
        common: dict[str, Any] = {"connection": self.connection.as_input(), "gpus": self.gpus}
        driver = None
        if self.driver is not None:
            driver = GpuDriver(f"{host}-driver", opts=child, **common, **self.driver.inputs())
        prepared = PreparedHost(
            f"{host}-rootless",
            account=self.account,
            docker=self.versions.docker,
            container_toolkit=self.versions.container_toolkit,
            sudo=self.sudo,
            ports=sorted(self.ports),
            # The node is built from it, so that it is pulled anyway, and it is pinned.
            probe_image=self.versions.node_image,
            remove_data=self.remove_data,
            opts=after(driver, opts=child),
            **common,
        )
        self.facts = prepared.facts
        return {"facts": self.facts, "gpu_uuids": prepared.gpu_uuids}


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


class UsernetesCluster(Component, module="usernetes"):
    """All hosts of one cluster, each one resource named `<host>-node`."""

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

    kubeconfig: pulumi.Output[str] = field(init=False)
    """Admin kubeconfig, known when the control plane is there. Secret."""
    nodes: Mapping[str, UsernetesNode] = field(init=False)

    def declare(self) -> Told:
        name = self._name
        first, versions = self.control_plane, self.versions
        self._common: dict[str, Any] = {
            "cluster": name,
            "source": {
                "tag": versions.usernetes,
                "location": versions.archive_url,
                "sha256": versions.usernetes_sha256,
                "kubernetes": versions.kubernetes,
            },
            "container_toolkit": versions.container_toolkit,
            "preflight_image": versions.preflight_image,
            "overlay": {file: scripts.read(f"usernetes/overlay/{file}") for file in OVERLAY},
            "network": self.network.model_dump(mode="json"),
            "slirp4netns": versions.slirp4netns,
            "schedule_on_control_plane": self.schedule_on_control_plane,
            "api": self.api.model_dump(mode="json", exclude_none=True),
            "join_token_hours": self.join_token_hours,
            "join_timeout_seconds": self.join_timeout_seconds,
            "build_timeout_seconds": self.build_timeout_seconds,
            "drain_timeout_seconds": self.drain_timeout_seconds,
        }
        control = self._node(first, "control-plane", protect=self.protect)
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
            for worker in self.workers
        }
        # The control plane's alone: were it that of all nodes, whatever is in the cluster would seem to
        # change with every worker. Who needs them all depends on `nodes`.
        self.kubeconfig = pulumi.Output.secret(control.kubeconfig)
        return {"kubeconfig": self.kubeconfig}

    def _node(
        self,
        host: UsernetesHost,
        role: str,
        earlier: UsernetesNode | None = None,
        *,
        protect: bool = False,
        **joins: Any,
    ) -> UsernetesNode:
        child = after(host.after, earlier, opts=self.child)
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


class GpuPlugin(Component, module="usernetes"):
    """There when every node offers its GPUs. The provider for the cluster comes with the options."""

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

    allocatable: pulumi.Output[Mapping[str, int]] = field(init=False)

    def declare(self) -> Told:
        name, child = self._name, self.child
        image = self.versions.device_plugin_image
        made: list[pulumi.Resource] = [
            RuntimeClass(f"{name}-runtime-class", **_parts(manifest.runtime_class()), opts=child),
            DaemonSet(f"{name}-device-plugin", **_parts(manifest.device_plugin(image)), opts=child),
        ]
        if self.metrics:
            exporter = _parts(manifest.dcgm_exporter(self.versions.dcgm_exporter_image))
            service = _parts(manifest.exporter_service())
            made += [
                DaemonSet(f"{name}-exporter", **exporter, opts=child),
                Service(f"{name}-exporter-service", **service, opts=child),
            ]
        gate = PluginGate(
            f"{name}-gate",
            cluster=self.cluster,
            kubeconfig=self.kubeconfig,
            expected=dict(self.nodes),
            timeout_seconds=self.timeout_seconds,
            triggers=[image, self.versions.container_toolkit, *self.triggers],
            opts=after(*made, opts=child),
        )
        self.allocatable = gate.allocatable
        return {"allocatable": gate.allocatable}


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    return {part: said for part, said in document.items() if part not in ("apiVersion", "kind")}
