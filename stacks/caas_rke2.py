"""The Kubernetes of a `caas` cluster where it is made with RKE2: servers of their own, machines as agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from components.rke2.cluster import Rke2Cluster, Rke2ClusterArgs, Rke2Host
from gpuclusters.config import rke2_settings
from gpuclusters.config.boot import boot_profile
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.caas_secrets import Secrets
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.domain.rke2_config import Settings
from gpuclusters.host import drop_ins
from stacks import reach


def kubernetes(
    config: CaasConfig,
    secrets: Secrets,
    prepared: Mapping[str, Sequence[pulumi.Resource]],
    *,
    fit: pulumi.Resource,
) -> tuple[pulumi.Output[str], Mapping[str, Sequence[pulumi.Resource]]]:
    """The admin kubeconfig, and by machine what must be there before it can be used as a node.

    Args:
        config: the section.
        secrets: with the kubeconfig, unless the cluster is made here.
        prepared: what must be done on each machine before, by its name.
        fit: what every other machine waits for too, so that none is changed in vain.
    """
    if isinstance(config.kubernetes, Rke2Kubernetes):
        made = declare(config, config.kubernetes, secrets, prepared, fit)
        joined = {name: [*prepared.get(name, ()), node] for name, node in made.nodes.items()}
        return made.kubeconfig, joined
    if secrets.kubeconfig is None:
        raise RuntimeError(f"no kubeconfig for kubernetes.source {config.kubernetes.source}")
    return secrets.kubeconfig, prepared


def declare(
    config: CaasConfig,
    cluster: Rke2Kubernetes,
    secrets: Secrets,
    ready: Mapping[str, Sequence[pulumi.Resource]],
    fit: pulumi.Resource,
) -> Rke2Cluster:
    """The cluster. `ready`: what a machine waits for before it joins, by its name; all others for `fit`."""
    servers = [server.name for server in cluster.servers]
    return Rke2Cluster(
        config.name,
        Rke2ClusterArgs(
            version=cluster.version,
            artifacts=rke2_settings.artifacts(cluster),
            settings=_settings(config, cluster),
            servers=[
                Rke2Host(
                    connection=reach.connection(name, secrets.servers[name]),
                    requires=ready.get(name, (fit,)),
                )
                for name in servers
            ],
            agents=[
                Rke2Host(
                    connection=reach.connection(node.name, secrets.hosts[node.name]),
                    requires=ready.get(node.name, ()),
                )
                for node in config.nodes
                if node.name not in servers
            ],
            agents_at_once=cluster.agents_at_once,
            server_token=secrets.server_token,
            agent_token=secrets.agent_token,
            join_timeout_seconds=cluster.join_timeout_seconds,
            drain_timeout_seconds=cluster.drain_timeout_seconds,
            adopt=config.adopt.machines,
        ),
    )


def _settings(config: CaasConfig, cluster: Rke2Kubernetes) -> Settings:
    containerd = cluster.containerd
    return rke2_settings.settings(
        cluster,
        registration_address=cluster.registration_address or _only_address(config, cluster),
        kube_proxy_replacement=config.network.kube_proxy_replacement,
        socket_lb_host_namespace_only=config.network.socket_lb_host_namespace_only,
        dns_proxy=config.network.dns_proxy,
        ingress_controller=getattr(config.api.exposure, "ingress_class", None) == "cilium",
        kubelet_drop_in=drop_ins.kubelet(
            runtime_request_timeout_seconds=boot_profile(config).kubelet_request_timeout
        ),
        containerd_drop_in=drop_ins.containerd(
            schema=drop_ins.ContainerdSchema(containerd.config_version.value),
            enable_cdi=containerd.enable_cdi,
            image_pull_progress_timeout_seconds=containerd.image_pull_progress_timeout_seconds,
        ),
    )


def _only_address(config: CaasConfig, cluster: Rke2Kubernetes) -> str:
    """The address of the only server; that of the lab is this computer."""
    (server,) = cluster.servers
    if server.address is not None:
        return server.address
    machines = config.hosts.machines if config.hosts.source == "existing" else ()
    return next((one.address for one in machines if one.name == server.name), "127.0.0.1")
