"""Whom the cluster's own programs talk to: a network policy for the namespace of each, closed but for that.

Cilium's language: policies add up, so that what a cluster needs beside this (an issuer that is a pod of the
same cluster, another collector of metrics) is one more policy of the operator's. The kubelet's probes come
from a pod's own node, which Cilium always lets in; a port-forward ends inside the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from gpuclusters.domain.network import joined, literal
from gpuclusters.tenancy.isolation import DNS_SERVERS, TENANT_LABEL
from gpuclusters.tenancy.program_accounts import Program

POLICY = "program"
"""Name of the policy in each namespace."""
COLLECTOR = {"k8s:app.kubernetes.io/name": "prometheus"}
"""Labels of the pods that collect metrics, as the Prometheus Operator sets them."""

Spec = dict[str, Any]

_NO_TENANT = {
    "key": f"k8s:io.cilium.k8s.namespace.labels.{TENANT_LABEL}",
    "operator": "DoesNotExist",
}
_ANY_NAMESPACE = {"key": "k8s:io.kubernetes.pod.namespace", "operator": "Exists"}
_NODES = ("host", "remote-node")
"""Machines that are nodes of the cluster; no range applies to them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something answers."""

    host: str
    """Address or name."""
    port: int

    @classmethod
    def of(cls, url: str) -> Place:
        """Where an address that begins with https leads."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 443)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What the programs connect to beside the API server."""

    machines: Sequence[Place] = ()
    """Their SSH servers."""
    management_controllers: Sequence[Place] = ()
    """Their Redfish services."""
    issuer: Sequence[Place] = ()
    """Who has the keys of tenants' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a program answers at."""

    serves: int | None = None
    """For tenants."""
    metrics: int


def policies(
    reach: Reach,
    ports: Mapping[Program, Ports],
    *,
    monitored: bool,
    callers: Sequence[str] = (),
) -> Mapping[Program, Spec]:
    """The `spec` of each program's CiliumNetworkPolicy, in the program's namespace.

    Args:
        reach: whom the programs connect to.
        ports: what each answers at.
        monitored: whether somebody collects metrics.
        callers: networks outside of the cluster from which the API is called, by whatever stands before it
            or by its tenants.
    """
    machines = (*reach.machines, *reach.management_controllers)
    out = {
        Program.CONTROLLERS: [*_to_nodes(reach.machines), *_to(machines)],
        Program.API: _to(reach.issuer),
        Program.DEVICE_PLUGIN: [],
    }
    return {
        program: {
            "endpointSelector": {},
            # A rule that is empty opens nothing, and closes its direction.
            "ingress": [{}, *_ingress(ports[program], callers, monitored=monitored)],
            "egress": [{"toEntities": ["kube-apiserver"]}, *out[program]],
        }
        for program in Program
    }


def _ingress(ports: Ports, callers: Sequence[str], *, monitored: bool) -> list[Spec]:
    rules: list[Spec] = []
    if ports.serves is not None:
        # Whatever stands before the API: pods that are no tenant's, Cilium's own ingress, or a proxy on
        # the network of a node. Whoever asks needs a token besides.
        serves = _ports(ports.serves)
        pods = {"matchExpressions": [_NO_TENANT, _ANY_NAMESPACE]}
        rules.append({"fromEndpoints": [pods], "toPorts": serves})
        rules.append({"fromEntities": ["ingress", *_NODES], "toPorts": serves})
        if callers:
            # No pod is in a range for Cilium, whatever its address.
            ranges = [{"cidr": caller} for caller in callers]
            rules.append({"fromCIDRSet": ranges, "toPorts": serves})
    if monitored:
        collectors = {"matchLabels": COLLECTOR, "matchExpressions": [_NO_TENANT, _ANY_NAMESPACE]}
        rules.append({"fromEndpoints": [collectors], "toPorts": _ports(ports.metrics)})
    return rules


def _to_nodes(machines: Sequence[Place]) -> list[Spec]:
    return [
        {"toEntities": list(_NODES), "toPorts": _ports(port)}
        for port in sorted({machine.port for machine in machines})
    ]


def _to(places: Iterable[Place]) -> list[Spec]:
    """Rules for places given by address, and for those given by name, which have to be looked up too."""
    found: list[Spec] = []
    names: list[str] = []
    for port, group in groupby(
        sorted(set(places), key=attrgetter("port", "host")), attrgetter("port")
    ):
        hosts = [place.host for place in group]
        ranges = joined(ip_network(address) for host in hosts if (address := literal(host)))
        named = [host for host in hosts if literal(host) is None]
        if ranges:
            cidrs = [{"cidr": one} for one in ranges]
            found.append({"toCIDRSet": cidrs, "toPorts": _ports(port)})
        if named:
            found.append({"toFQDNs": _matches(named), "toPorts": _ports(port)})
        names += named
    if names:
        dns = {
            "ports": [{"port": "53", "protocol": "UDP"}, {"port": "53", "protocol": "TCP"}],
            "rules": {"dns": _matches(sorted(set(names)))},
        }
        found.append({"toEndpoints": [DNS_SERVERS], "toPorts": [dns]})
    return found


def _matches(names: Iterable[str]) -> list[Spec]:
    return [{"matchName": name.removesuffix(".")} for name in names]


def _ports(number: int) -> list[Spec]:
    return [{"ports": [{"port": str(number), "protocol": "TCP"}]}]
