"""What a section with RKE2 means to the components that make the cluster. Pure.

Every cluster type with RKE2 gets the same cluster: `shared` is what all of them state in the same words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.rke2 import CiliumSettings, DownloadedArtifacts, Rke2Common
from gpuclusters.rke2 import host_config
from gpuclusters.rke2.host_config import Cilium


def artifacts(cluster: Rke2Common) -> dict[str, Any]:
    """The release's files as an input of `Rke2Node`."""
    stated = cluster.artifacts
    return {
        "source": stated.source,
        "location": stated.url if isinstance(stated, DownloadedArtifacts) else stated.folder,
        "checksum": stated.checksum,
        "images": list(stated.images),
    }


def shared(cluster: Rke2Common, *, registration_address: str) -> host_config.Settings:
    """What every cluster type states; networks and CNI are the caller's.

    Args:
        cluster: the section.
        registration_address: fixed address of the servers, resolved.
    """
    return host_config.Settings(
        registration_address=registration_address,
        tls_san=cluster.tls_san,
        cluster_domain=cluster.cluster_domain,
        cis=cluster.cis_profile,
        selinux=cluster.selinux,
        dedicated_servers=cluster.dedicated_servers,
        disabled=cluster.disabled_charts,
        deny_external_ips=cluster.deny_external_ips,
        system_default_registry=cluster.system_default_registry,
        registries=registries(cluster),
        etcd_snapshot_cron=cluster.etcd_snapshot_cron,
        etcd_snapshot_retention=cluster.etcd_snapshot_retention,
        environment=cluster.environment,
    )


def cilium(
    stated: CiliumSettings,
    *,
    kube_proxy_replacement: bool,
    socket_lb_host_namespace_only: bool,
    dns_proxy: bool,
    ingress_controller: bool = False,
) -> Cilium:
    """Cilium as its chart is told, from the section and from what belongs to the network."""
    return Cilium(
        kube_proxy_replacement=kube_proxy_replacement,
        socket_lb_host_namespace_only=socket_lb_host_namespace_only,
        dns_proxy=dns_proxy,
        policy_enforcement=stated.policy_enforcement,
        encryption=stated.encryption,
        mtu=stated.mtu,
        host_firewall=stated.host_firewall,
        ingress_controller=ingress_controller,
    )


def settings(
    cluster: Rke2Kubernetes,
    *,
    registration_address: str,
    kube_proxy_replacement: bool,
    ingress_controller: bool,
    kubelet_drop_in: str,
    containerd_drop_in: str,
) -> host_config.Settings:
    """All that the hosts of a `caas` cluster agree on.

    Args:
        cluster: the section.
        registration_address: fixed address of the servers, resolved.
        kube_proxy_replacement: of Cilium.
        ingress_controller: of Cilium.
        kubelet_drop_in: KubeletConfiguration beside RKE2's own.
        containerd_drop_in: configuration of containerd, version 3, beside RKE2's own.
    """
    return replace(
        shared(cluster, registration_address=registration_address),
        pod_cidr=cluster.pod_cidr,
        service_cidr=cluster.service_cidr,
        cilium=cilium(
            cluster.cilium,
            kube_proxy_replacement=kube_proxy_replacement,
            socket_lb_host_namespace_only=True,
            dns_proxy=True,
            ingress_controller=ingress_controller,
        ),
        kubelet_drop_in=kubelet_drop_in,
        containerd_drop_in=containerd_drop_in,
    )


def registries(cluster: Rke2Common) -> dict[str, Any]:
    """`registries.yaml`; empty without mirrors."""
    if not cluster.mirrors:
        return {}
    return {
        "mirrors": {
            name: {"endpoint": list(mirror.endpoints)}
            | ({"rewrite": dict(mirror.rewrite)} if mirror.rewrite else {})
            for name, mirror in cluster.mirrors.items()
        }
    }
