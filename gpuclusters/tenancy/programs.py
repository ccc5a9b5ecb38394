"""The cluster's own programs: namespace and account of each, and whom it talks to.

Whoever may make pods in a namespace reads every Secret in it and takes every account in it; so each program
has a namespace of its own. A Cilium network policy closes it but for what its program needs; policies add up,
so a cluster that needs more adds one of its own. Cilium always lets the kubelet's probes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_network
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from gpuclusters.tenancy.isolation import joined, literal, rules, to_dns

BASE = "gpu-clusters-system"
"""The namespaces' base name, where the configuration says nothing."""
LONGEST_BASE = 49
"""With this many characters the longest derived name still is one that Kubernetes takes."""
POLICY = "program"
"""Name of the network policy in each namespace."""

Spec = dict[str, Any]

_NODES = ("host", "remote-node")
"""Machines that are nodes of the cluster; no range applies to them."""


class Program(StrEnum):
    """A program of the cluster; the value names its account, its pods and its module."""

    CONTROLLERS = "controllers"
    API = "api"
    DEVICE_PLUGIN = "device-plugin"


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where each program lives and as whom it speaks; `base` is the namespace of the API.

    The others: `base` without `-system`, and the program: `gpu-clusters-controllers`.
    """

    base: str = BASE

    def namespace(self, program: Program) -> str:
        if program is Program.API:
            return self.base
        return f"{self.base.removesuffix('-system')}-{program}"

    def user(self, program: Program) -> str:
        """The name by which the API server knows the program's account."""
        return f"system:serviceaccount:{self.namespace(program)}:{program}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(map(self.namespace, Program))


TENANTS_PROGRAMS = (Program.API, Program.CONTROLLERS)
"""Those that work in tenants' namespaces."""


def tenant_role(program: Program) -> str:
    """The ClusterRole with what a program does in a tenant's namespace; bound there and nowhere else."""
    return f"gpu-clusters-tenant-{program}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something answers: an address or name, and a port."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Place:
        """Where a URL with https leads."""
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
    """What a program answers at: `serves` tenants, `metrics` for monitoring."""

    serves: int | None = None
    metrics: int


def network_policies(
    reach: Reach,
    listening: Mapping[Program, Ports],
    *,
    monitored: bool,
    callers: Sequence[str] = (),
) -> Mapping[Program, Spec]:
    """The `spec` of each program's CiliumNetworkPolicy, in the program's namespace.

    `callers` are networks outside of the cluster from which the API is called.
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
            "ingress": [{}, *_ingress(listening[program], callers, monitored=monitored)],
            "egress": [{"toEntities": ["kube-apiserver"]}, *out[program]],
        }
        for program in Program
    }


def _ingress(answers: Ports, callers: Sequence[str], *, monitored: bool) -> list[Spec]:
    found = rules(
        "to-program",
        serves=str(answers.serves),
        metrics=str(answers.metrics),
        callers=[{"cidr": caller} for caller in callers],
    )
    serves = answers.serves is not None
    wanted = {"pods": serves, "proxies": serves, "callers": serves and callers}
    wanted["collectors"] = monitored
    return [found[name] for name, holds in wanted.items() if holds]


def _to_nodes(machines: Sequence[Place]) -> list[Spec]:
    return [
        {"toEntities": list(_NODES), "toPorts": _port(port)}
        for port in sorted({machine.port for machine in machines})
    ]


def _to(places: Iterable[Place]) -> list[Spec]:
    """Rules for places given by address, and for those given by name, which have to be looked up too."""
    found: list[Spec] = []
    names: list[str] = []
    by_port = sorted(set(places), key=attrgetter("port", "host"))
    for port, group in groupby(by_port, attrgetter("port")):
        hosts = [place.host for place in group]
        named = [host for host in hosts if literal(host) is None]
        if ranges := joined(ip_network(address) for host in hosts if (address := literal(host))):
            found.append({"toCIDRSet": [{"cidr": one} for one in ranges], "toPorts": _port(port)})
        if named:
            found.append({"toFQDNs": _matches(named), "toPorts": _port(port)})
        names += named
    if names:
        found.append(to_dns(_matches(sorted(set(names)))))
    return found


def _port(port: int) -> list[Spec]:
    return [{"ports": [{"port": str(port), "protocol": "TCP"}]}]


def _matches(names: Iterable[str]) -> list[Spec]:
    return [{"matchName": name.removesuffix(".")} for name in names]
