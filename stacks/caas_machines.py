"""The HGX machines of a `caas` cluster, all looked at before one is prepared, and RKE2 where it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.caas.gpu_host import GpuHost, RuntimeDropIns
from components.host_connection import HostConnection
from components.kubernetes_objects import after
from components.rke2.cluster import Rke2Cluster, Rke2Host
from gpuclusters.config import rke2_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.plan import CaasPlan, NodePlan
from gpuclusters.config.secrets import CaasSecrets
from gpuclusters.preflight.resource import FleetPreflight
from gpuclusters.rke2.host_config import Cilium
from stacks import hosts


@dataclass(frozen=True, kw_only=True)
class Machines:
    fit: pulumi.Resource
    """All of them were found fit: what changes a machine of the cluster waits for this."""
    hosts: Mapping[str, GpuHost]
    """By name."""


def declare(config: CaasConfig, cluster: CaasPlan, secrets: CaasSecrets) -> Machines:
    """The machines. None is changed before all of them were found fit."""
    connections = {
        node.name: hosts.connection(node.name, secrets.hosts[node.name]) for node in cluster.nodes
    }
    fit = FleetPreflight(
        "preflight",
        cluster=config.name,
        machines=[
            {
                "connection": connections[node.name].as_input(),
                "expects": node.expects.model_dump(mode="json"),
            }
            for node in cluster.nodes
        ],
    )
    made = {
        node.name: _host(config, cluster, node, connections[node.name], secrets, after(fit))
        for node in cluster.nodes
    }
    return Machines(fit=fit, hosts=made)


def _host(
    config: CaasConfig,
    cluster: CaasPlan,
    node: NodePlan,
    reached: HostConnection,
    secrets: CaasSecrets,
    opts: pulumi.ResourceOptions,
) -> GpuHost:
    own, fabric, drop_ins = config.own_table, None, None
    if node.declared or node.layout is not None:
        numbers = [cut.id for cut in node.partitions]
        fabric = {
            "partitions": numbers if node.layout is None else None,
            "layout": None if node.layout is None else list(node.layout),
            "table": {str(number): list(modules) for number, modules in own.items()}
            if own
            else None,
            "fabric_manager_host": cluster.fabric_manager_host,
            # Not stated, it is that of Kata's image, which the rules hold equal to the fabric manager's.
            "guest_driver": config.versions.guest_driver or config.versions.fabric_manager,
        }
    if not isinstance(
        config.kubernetes, Rke2Kubernetes
    ):  # which reads others, and only when it starts
        drop_ins = RuntimeDropIns(
            kubelet=cluster.kubelet_drop_in, containerd=config.kubernetes.containerd.drop_in
        )
    return GpuHost(
        node.name,
        opts,
        connection=reached,
        private_key=secrets.ssh_private_key,
        wanted=node.preparation,
        adopt=node.adopt,
        expects=node.expects,
        board=node.board,
        service_vm=node.service_vm,
        baseboard=cluster.preset.baseboard,
        fabric=fabric,
        cdi_kind=config.device_access.cdi_kind,
        vfio=config.device_access.vfio.value,
        drop_ins=drop_ins,
        protect=config.protect,
    )


def kubernetes(
    config: CaasConfig, plan: CaasPlan, secrets: CaasSecrets, machines: Machines
) -> tuple[pulumi.Output[str], Mapping[str, Sequence[pulumi.Resource]]]:
    """The admin kubeconfig, and by machine what must be there before it can be used as a node."""
    if isinstance(config.kubernetes, Rke2Kubernetes):
        made = _rke2(config, plan, config.kubernetes, secrets, machines)
        joined = {
            name: [*([machines.hosts[name]] if name in machines.hosts else []), node]
            for name, node in made.nodes.items()
        }
        return made.kubeconfig, joined
    if secrets.kubeconfig is None:
        raise RuntimeError(f"no kubeconfig for kubernetes.source {config.kubernetes.source}")
    return secrets.kubeconfig, {name: [host] for name, host in machines.hosts.items()}


def _rke2(
    config: CaasConfig,
    plan: CaasPlan,
    cluster: Rke2Kubernetes,
    secrets: CaasSecrets,
    machines: Machines,
) -> Rke2Cluster:
    servers = [server.name for server in cluster.servers]
    address = cluster.registration_address
    if address is None:
        (server,) = cluster.servers
        address = server.address or hosts.own_address(config.hosts, server.name)
    endpoints = {**secrets.hosts, **secrets.servers}
    ingress = getattr(config.api.exposure, "ingress_class", None)

    def host(name: str) -> Rke2Host:
        # Servers too wait for all machines, so that none is changed in vain.
        before = machines.hosts.get(name, machines.fit)
        return Rke2Host(connection=hosts.connection(name, endpoints[name]), after=before)

    return Rke2Cluster(
        config.name,
        version=cluster.version,
        artifacts=rke2_plan.artifacts(cluster),
        settings=rke2_plan.shared_settings(
            cluster,
            registration_address=address,
            pod_cidr=cluster.pod_cidr,
            service_cidr=cluster.service_cidr,
            cilium=Cilium(
                **cluster.cilium.model_dump(),
                kube_proxy_replacement=config.network.kube_proxy_replacement,
                ingress_controller=ingress == "cilium",
            ),
            kubelet_drop_in=plan.kubelet_drop_in,
            containerd_drop_in=cluster.containerd.drop_in,
        ),
        servers=[host(name) for name in servers],
        agents=[host(node.name) for node in config.nodes if node.name not in servers],
        agents_at_once=cluster.agents_at_once,
        server_token=secrets.server_token,
        agent_token=secrets.agent_token,
        join_timeout_seconds=cluster.join_timeout_seconds,
        drain_timeout_seconds=cluster.drain_timeout_seconds,
        adopt=config.adopt.machines,
        protect=config.protect,
    )
