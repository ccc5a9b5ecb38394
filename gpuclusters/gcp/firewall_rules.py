"""What nodes of a cluster send to each other, as rules of Google Cloud's firewall.

Sources: Usernetes gen2 and gen3, README and docker-compose.yaml; docs.rke2.io, "Inbound network rules"; the
ports of the control plane's metrics are Kubernetes' own defaults.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuclusters.rke2.releases import API_PORT, SUPERVISOR_PORT
from gpuclusters.usernetes.addresses import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What one machine of a cluster may send to another."""

    protocol: str
    """tcp, udp, icmp, or a number like 4 for IP in IP."""
    ports: Sequence[str] = ()
    """Ports and ranges, like `6443` and `30000-32767`; all of the protocol if there are none."""


ICMP = Allowed(protocol="icmp")
"""Without it nobody learns that a packet was too large."""
_RKE2_TCP = (str(API_PORT), str(SUPERVISOR_PORT), "2379-2381", "10250", "30000-32767")
_METRICS_TCP = ("9100", "10249", "10257", "10259")
_CNI: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "canal": (("9099",), ("8472", "51820-51821")),
    "calico": (("179", "5473", "9098", "9099"), ("4789", "51820-51821")),
    "cilium": (("4240", "4244"), ("8472", "51871")),
    "flannel": ((), ("4789", "8472")),
}
"""Ports of TCP and of UDP."""


def _rules(tcp: Sequence[str], udp: Sequence[str]) -> tuple[Allowed, ...]:
    return Allowed(protocol="tcp", ports=tcp), Allowed(protocol="udp", ports=udp), ICMP


def usernetes(ports: Ports) -> tuple[Allowed, ...]:
    """API server, kubelet; flannel's VXLAN. The ports of etcd and Calico, their own machines alone use."""
    return _rules((str(ports.kube_apiserver), str(ports.kubelet)), (str(ports.flannel),))


def rke2(cni: str, *, metrics: bool) -> tuple[Allowed, ...]:
    """What RKE2 and the CNI need; with `metrics` Prometheus reads node exporter too."""
    tcp, udp = _CNI[cni]
    return _rules((*_RKE2_TCP, *tcp, *(_METRICS_TCP if metrics else ())), udp)
