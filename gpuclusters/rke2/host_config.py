"""What RKE2 is told on each host: its configuration, the values of its CNI, files. No token in any of it.

Sources: RKE2's server and agent configuration reference and its networking documentation (HelmChartConfig),
Cilium's documentation of Kata Containers and of kube-proxy replacement, cilium#15437.

What must be equal on all servers (cluster-cidr, service-cidr, disable-kube-proxy, …) comes from one value
here, because a server that differs is refused with "critical configuration value mismatch".
The CNI of a running cluster cannot change, and values that come later roll every agent, so all of them are
written with the first server. External IPs of services are not among them: from Cilium 1.19, which RKE2 has
since v1.32.12, they cannot be switched off, so the API server and the admission policy refuse them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network
from typing import Any

import yaml

from gpuclusters.core import scripts
from gpuclusters.core.model import BlockDumper
from gpuclusters.host.drop_ins import HEADER
from gpuclusters.rke2 import releases
from gpuclusters.rke2.releases import API_PORT, MANIFESTS, Role

CILIUM_FILE = f"{MANIFESTS}/rke2-cilium-config.yaml"


class PolicyEnforcement(StrEnum):
    """When Cilium closes an endpoint that no policy selects."""

    DEFAULT = "default"
    """Open until a policy selects it, per direction."""
    ALWAYS = "always"
    """Closed until a policy opens it; system pods need policies too, or nothing starts."""


class Encryption(StrEnum):
    """Whether traffic between nodes is encrypted."""

    NONE = "none"
    WIREGUARD = "wireguard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cilium:
    """What we decide of Cilium; the rest is the chart's default."""

    kube_proxy_replacement: bool = True
    socket_lb_host_namespace_only: bool = True
    """Translate services for sockets of the host alone: it cannot see those inside a VM, which are
    translated at the VM's interface instead."""
    dns_proxy: bool = True
    policy_enforcement: PolicyEnforcement = PolicyEnforcement.DEFAULT
    encryption: Encryption = Encryption.NONE
    mtu: int | None = None
    host_firewall: bool = False
    ingress_controller: bool = False


def cilium_values(cilium: Cilium) -> dict[str, Any]:
    replaced, wireguard = cilium.kube_proxy_replacement, cilium.encryption is Encryption.WIREGUARD
    words = {
        **asdict(cilium),
        "policy_enforcement": cilium.policy_enforcement.value,
        "service_host": "localhost" if replaced else None,
        "service_port": str(API_PORT) if replaced else None,
        "encryption": {"enabled": True, "type": "wireguard"} if wireguard else None,
        "ingress_controller": {"enabled": True} if cilium.ingress_controller else None,
    }
    return dict(scripts.manifest("rke2/cilium.yaml", words))


def chart_config(chart: str, chosen: Mapping[str, Any]) -> str:
    """A HelmChartConfig for one of RKE2's own charts."""
    body = {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": {"name": chart, "namespace": "kube-system"},
        "spec": {"valuesContent": yaml.safe_dump(dict(chosen), sort_keys=True)},
    }
    return str(yaml.dump(body, Dumper=BlockDumper, sort_keys=False))


class Cni(StrEnum):
    CANAL = "canal"
    CALICO = "calico"
    CILIUM = "cilium"
    FLANNEL = "flannel"

    @property
    def images(self) -> str:
        """The archive of a release with its images, for networks without a registry."""
        return f"rke2-images-{self}.linux-amd64.tar.zst"


def cni_values(cni: Cni, *, mtu: int | None = None, wireguard: bool = False) -> dict[str, Any]:
    """Values of the chart of a CNI other than Cilium; ValueError for what it cannot do."""
    if cni is Cni.CANAL:
        encrypted = {"flannel": {"backend": "wireguard"}} if wireguard else {}
        return encrypted | ({} if mtu is None else {"calico": {"vethuMTU": mtu}})
    if wireguard:
        raise ValueError(f"{cni} is not told to encrypt by this program")
    if mtu is not None and cni is not Cni.CALICO:
        raise ValueError(f"the MTU of {cni} is not set by this program")
    return {} if mtu is None else {"installation": {"calicoNetwork": {"mtu": mtu}}}


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
    cis: bool = False
    selinux: bool = False
    dedicated_servers: bool = True
    deny_external_ips: bool = True
    """Whether the API server refuses services with external IPs (CVE-2020-8554)."""
    disabled: Sequence[str] = ()
    """Charts of RKE2 that are not installed."""
    system_default_registry: str | None = None
    registries: Mapping[str, Any] = field(default_factory=dict)
    """`registries.yaml`, without passwords."""
    etcd_snapshot_cron: str = "0 */12 * * *"
    etcd_snapshot_retention: int = 5
    kubelet_drop_in: str | None = None
    containerd_drop_in: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the unit: proxies."""
    files: Mapping[str, str] = field(default_factory=dict)


def config(
    settings: Settings,
    role: Role,
    *,
    first: bool,
    node_name: str,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
) -> dict[str, Any]:
    """`config.yaml.d` of one host.

    Labels and taints in it count at the first registration only; later changes go through the API.
    """
    is_server = role is Role.SERVER
    own = [CONTROL_PLANE_TAINT] if is_server and settings.dedicated_servers else []
    address = f"https://{settings.registration_address}:{releases.SUPERVISOR_PORT}"
    stated: dict[str, Any] = {
        "server": "" if first else address,
        "profile": "cis" if settings.cis else "",
        "selinux": settings.selinux,
        "system-default-registry": settings.system_default_registry,
        "node-label": [f"{key}={value}" for key, value in sorted((labels or {}).items())],
        "node-taint": sorted([*taints, *own]),
    }
    chosen = {key: value for key, value in stated.items() if value}
    return {"node-name": node_name, **chosen, **(_server(settings) if is_server else {})}


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
    lines = [f"{name}={value}\n" for name, value in sorted(settings.environment.items())]
    is_cilium = settings.cni is Cni.CILIUM
    values = cilium_values(settings.cilium) if is_cilium else settings.cni_values
    chart = chart_config(f"rke2-{settings.cni}", values) if values and role is Role.SERVER else None
    found = {
        releases.INOTIFY: INOTIFY,
        releases.NETWORK_MANAGER: NETWORK_MANAGER,
        **settings.files,
        releases.REGISTRIES: document(settings.registries) if settings.registries else None,
        releases.KUBELET_DROP_IN: settings.kubelet_drop_in,
        releases.CONTAINERD_DROP_IN: settings.containerd_drop_in,
        f"{releases.ENVIRONMENT}/rke2-{role}": HEADER + "".join(lines) if lines else None,
        f"{MANIFESTS}/rke2-{settings.cni}-config.yaml": chart,
    }
    return {path: content for path, content in found.items() if content is not None}


def document(body: Mapping[str, Any]) -> str:
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
