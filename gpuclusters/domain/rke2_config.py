"""What RKE2 is told on each host: its configuration and the files that go with it. No token in any of it.

Source of the keys: RKE2's server and agent configuration reference. What must be equal on all servers
(cluster-cidr, service-cidr, cluster-dns, cluster-domain, disable-kube-proxy, …) comes from one value here,
because a server that differs is refused with "critical configuration value mismatch".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

import yaml

from gpuclusters.domain import rke2, rke2_cilium, rke2_cni
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_cilium import Cilium
from gpuclusters.domain.rke2_cni import Cni

HEADER = (
    "# Managed by gpu-clusters. Changes made here are put back by the next `pulumi up --refresh`.\n"
)
CONTROL_PLANE_TAINT = "CriticalAddonsOnly=true:NoExecute"
"""RKE2's documented taint for servers that carry no workload; its own charts tolerate it."""
POD_CIDR = IPv4Network("10.42.0.0/16")
SERVICE_CIDR = IPv4Network("10.43.0.0/16")
_DNS_INDEX = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One cluster, as all of its hosts agree on it."""

    registration_address: str
    """Fixed address of the servers, port 9345 to join and port 6443 for the API."""
    tls_san: Sequence[str] = ()
    pod_cidr: IPv4Network = POD_CIDR
    service_cidr: IPv4Network = SERVICE_CIDR
    cluster_domain: str = "cluster.local"
    cni: Cni = Cni.CILIUM
    cilium: Cilium = field(default_factory=Cilium)
    """Counts where it is the CNI."""
    cni_values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the chart of another CNI."""
    cis: bool = False
    selinux: bool = False
    dedicated_servers: bool = True
    """Whether servers carry no workload."""
    deny_external_ips: bool = True
    """Whether the API server refuses services with external IPs (CVE-2020-8554)."""
    disabled: Sequence[str] = ()
    """Charts of RKE2 that are not installed."""
    system_default_registry: str | None = None
    registries: Mapping[str, Any] = field(default_factory=dict)
    """`registries.yaml`, without passwords."""
    etcd_snapshot_cron: str = "0 */12 * * *"
    etcd_snapshot_retention: int = 5
    kubelet_arguments: Sequence[str] = ()
    kubelet_drop_in: str | None = None
    containerd_drop_in: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the unit: proxies."""
    files: Mapping[str, str] = field(default_factory=dict)
    """More files of every host, by path."""


def config(
    settings: Settings,
    role: Role,
    *,
    first: bool,
    node_name: str,
    node_ip: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
) -> dict[str, Any]:
    """`config.yaml.d` of one host.

    Labels and taints in it count at the first registration only; later changes go through the API.
    """
    chosen: dict[str, Any] = {"node-name": node_name}
    if node_ip is not None:
        chosen["node-ip"] = node_ip
    if not first:
        chosen["server"] = f"https://{settings.registration_address}:{rke2.SUPERVISOR_PORT}"
    if settings.cis:
        chosen["profile"] = "cis"
    if settings.selinux:
        chosen["selinux"] = True
    if settings.system_default_registry:
        chosen["system-default-registry"] = settings.system_default_registry
    if settings.kubelet_arguments:
        chosen["kubelet-arg"] = list(settings.kubelet_arguments)
    if labels:
        chosen["node-label"] = [f"{key}={value}" for key, value in sorted(labels.items())]
    all_taints = [*taints]
    if role is Role.SERVER:
        chosen |= _server(settings)
        if settings.dedicated_servers:
            all_taints.append(CONTROL_PLANE_TAINT)
    if all_taints:
        chosen["node-taint"] = sorted(all_taints)
    return chosen


def _server(settings: Settings) -> dict[str, Any]:
    is_cilium = settings.cni is Cni.CILIUM
    plugins = ["NodeRestriction"]  # RKE2's own, which an argument of ours replaces
    if settings.deny_external_ips:
        plugins.append("DenyServiceExternalIPs")
    return {
        "tls-san": sorted({settings.registration_address, *settings.tls_san}),
        "cni": settings.cni.value,
        "disable-kube-proxy": is_cilium and settings.cilium.kube_proxy_replacement,
        "cluster-cidr": str(settings.pod_cidr),
        "service-cidr": str(settings.service_cidr),
        "cluster-dns": str(settings.service_cidr[_DNS_INDEX]),
        "cluster-domain": settings.cluster_domain,
        "disable": sorted(settings.disabled),
        "kube-apiserver-arg": [f"enable-admission-plugins={','.join(plugins)}"],
        "write-kubeconfig-mode": "0600",
        "etcd-snapshot-schedule-cron": settings.etcd_snapshot_cron,
        "etcd-snapshot-retention": settings.etcd_snapshot_retention,
    }


def files(settings: Settings, role: Role) -> dict[str, str]:
    """Everything else that lies on a host, by path."""
    found = {rke2.INOTIFY: INOTIFY, rke2.NETWORK_MANAGER: NETWORK_MANAGER, **settings.files}
    if settings.registries:
        found[rke2.REGISTRIES] = document(settings.registries)
    if settings.kubelet_drop_in is not None:
        found[rke2.KUBELET_DROP_IN] = settings.kubelet_drop_in
    if settings.containerd_drop_in is not None:
        found[rke2.CONTAINERD_DROP_IN] = settings.containerd_drop_in
    if settings.environment:
        lines = [f"{name}={value}\n" for name, value in sorted(settings.environment.items())]
        found[f"{rke2.ENVIRONMENT}/rke2-{role}"] = HEADER + "".join(lines)
    if role is Role.SERVER:
        if settings.cni is Cni.CILIUM:
            found[rke2_cilium.PATH] = rke2_cilium.helm_chart_config(settings.cilium)
        else:
            found |= rke2_cni.manifest(settings.cni, settings.cni_values)
    return found


def document(body: Mapping[str, Any]) -> str:
    """A file of ours in YAML."""
    return HEADER + yaml.safe_dump(dict(body), sort_keys=True, default_flow_style=False)


INOTIFY = HEADER + (
    '# Each container watches files; the defaults end in "too many open files" (rke2-docs#548).\n'
    "fs.inotify.max_user_instances = 8192\n"
    "fs.inotify.max_user_watches = 524288\n"
)
NETWORK_MANAGER = HEADER + (
    "# NetworkManager must leave the interfaces of pods alone (RKE2, known issues).\n"
    "[keyfile]\n"
    "unmanaged-devices=interface-name:cilium*;interface-name:lxc*;interface-name:cali*;"
    "interface-name:flannel*\n"
)
