"""What isolates a tenant in a Kubernetes cluster, and which addresses are not for tenants."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import Any

from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import Part
from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.tenancy.model import Egress

TENANT_LABEL = "gpu-clusters.dev/tenant"
"""Label of a tenant's namespaces. Policies select by it; tenants may not edit namespaces."""

GPU_SIZES_ANNOTATION = "gpu-clusters.dev/gpu-sizes"
"""Annotation of a tenant's namespace: how many GPUs one container may ask for, for example `1,2`."""

IMAGES_ANNOTATION = "gpu-clusters.dev/images"
"""Annotation of a tenant's namespace: where its images come from; empty without a list of its own."""
PULL_SECRET = "registry-credentials"  # noqa: S105 - a name
"""Secret of a tenant's namespace with its credentials of registries."""

OF_TENANT = f"k8s:io.cilium.k8s.namespace.labels.{TENANT_LABEL}"
"""The label as Cilium knows it of a pod."""
BASELINE = "gpu-clusters-tenants"
"""Name of the cluster-wide network policy of all tenants."""
POLICY = "isolate"
"""Name of the network policy of one tenant."""


class Network(Part):
    """Ranges of the cluster's own machines, closed to tenants."""

    infrastructure_cidrs: tuple[str, ...] = ()
    """Machines, management controllers, service VMs, pods and services: denied to every tenant. What Cilium
    manages itself, such as a tenant's own pods, has an identity, and no range applies to it."""
    storage_cidrs: tuple[str, ...] = ()
    """File servers: no part of the internet, but not denied, which would outweigh any allowance."""
    cluster_domain: str = "cluster.local"
    """DNS domain of services."""


Spec = dict[str, Any]


def namespace_annotations(gpu_sizes: Sequence[int], images: Sequence[str]) -> dict[str, str]:
    """Annotations of a tenant's namespace; the pod policy reads them."""
    return {
        GPU_SIZES_ANNOTATION: ",".join(str(size) for size in sorted(gpu_sizes)),
        IMAGES_ANNOTATION: ",".join(sorted(images)),
    }


def rules(part: str, **words: Any) -> Any:
    """A part of `network.yaml` with words in it."""
    return scripts.manifest("tenancy/network.yaml", {"of_tenant": OF_TENANT, **words}, part)


def to_dns(names: Sequence[Spec]) -> Spec:
    """A rule that lets these names be looked up."""
    return dict(rules("dns", names=names))


def network_policy(egress: Egress, network: Network, namespace: str) -> list[Spec]:
    """The `specs` of a tenant's CiliumNetworkPolicy; each says in its description what it is for."""
    closed = (*network.infrastructure_cidrs, *network.storage_cidrs)
    found = rules(
        "tenant",
        dns=to_dns(_resolvable(egress, network, namespace)),
        file_servers=[{"cidr": cidr} for cidr in sorted(egress.nfs_cidrs)],
        names=_named(egress.fqdns),
        not_the_internet=sorted({*rules("not-the-internet"), *closed}),
    )
    wanted = {
        "isolate": True,
        "allow-dns": True,
        "allow-nfs": egress.nfs_cidrs,
        "allow-internet": egress.internet,
        "allow-names": egress.fqdns,
        "allow-api-server": egress.api_server,
        "deny-api-server": not egress.api_server,
    }
    names = [name for name, holds in wanted.items() if holds]
    return [{"description": name, "endpointSelector": {}, **found[name]} for name in names]


def _resolvable(egress: Egress, network: Network, namespace: str) -> list[Spec]:
    """The names that a tenant's pods may ask for: a name is also a way to send what is in it.

    Names of its own services, with what resolvers try first (`web.svc` in the search domain `svc.DOMAIN`);
    the API server's and those of its rules, if it has any; all of them only with the whole internet.
    """
    if egress.internet:
        return [{"matchPattern": "*"}]
    services = f"svc.{network.cluster_domain}"
    names = [f"**.{namespace}.{services}", f"**.{namespace}.svc.{services}", *egress.fqdns]
    if egress.api_server:
        names.append(f"kubernetes.default.{services}")
    return _named(names)


def _named(names: Iterable[str]) -> list[Spec]:
    return [{"matchPattern" if "*" in name else "matchName": name} for name in sorted(names)]


def baseline(network: Network) -> Spec:
    """The CiliumClusterwideNetworkPolicy of every tenant's pods, older than any tenant.

    It closes both directions, so that an agent that has not yet heard of a new tenant's own policies
    lets nothing through instead of everything. And it denies, which no allowance can widen, every
    node, kubelets, metadata services, BMC networks, and above all the fabric manager, whose API
    knows neither authentication nor TLS.
    """
    cidrs = sorted({*map(str, NEVER_FOR_TENANTS), *network.infrastructure_cidrs})
    closed = [{"cidr": cidr} for cidr in cidrs]
    return dict(rules("baseline", closed=closed, fabric_manager=str(FABRIC_MANAGER_PORT)))


Address = IPv4Address | IPv6Address
Range = IPv4Network | IPv6Network

METADATA = IPv4Network("169.254.0.0/16")
"""Link-local: the metadata service of clouds and of many BMCs."""

NEVER_FOR_TENANTS: tuple[Range, ...] = tuple(map(ip_network, rules("never-for-tenants")))
"""What every tenant is denied in every cluster."""

LOCAL_ZONES = ("localhost", "localdomain", "local", "internal", "svc", "home.arpa")
"""Domains whose names mean something near by: this pod, its cluster, its cloud (metadata.google.internal)."""


def overlapping(network: Range, others: Iterable[Range]) -> tuple[Range, ...]:
    """Those of the other networks that share an address with this one."""
    return tuple(other for other in others if network.overlaps(other))


def containing(address: Address, networks: Iterable[Range]) -> tuple[Range, ...]:
    """The networks that the address lies in."""
    return tuple(network for network in networks if address in network)


def literal(host: str) -> Address | None:
    """The address that a host is given by; None if it is given by a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def joined(ranges: Iterable[Range]) -> tuple[str, ...]:
    """The same addresses in as few ranges as possible: those of IPv4, then those of IPv6."""
    stated = list(ranges)
    old = collapse_addresses(one for one in stated if isinstance(one, IPv4Network))
    new = collapse_addresses(one for one in stated if isinstance(one, IPv6Network))
    return (*map(str, old), *map(str, new))


def around(address: Address) -> Range:
    """The range that an address is in, if networks are as large as most are: a /24, or a /64 of IPv6."""
    return ip_network(f"{address}/{24 if address.version == 4 else 64}", strict=False)


def may_name(pattern: str, zone: str) -> bool:
    """Whether a pattern stands for the zone or a name below it; `*` is within one label, `**.` any labels."""
    labels, wanted = _labels(pattern), _labels(zone)
    below = len(labels) > len(wanted) and _same(labels[: len(wanted)], wanted)
    return below or names(pattern, zone)


def names(pattern: str, host: str) -> bool:
    """Whether a name or pattern of a rule by name stands for this very host."""
    labels, wanted = _labels(pattern), _labels(host)
    if labels[-1] == "**" and len(labels) <= len(wanted):
        return _same(labels[:-1], wanted[: len(labels) - 1])
    return len(labels) == len(wanted) and _same(labels, wanted)


def _labels(name: str) -> list[str]:
    """From the last label to the first."""
    return name.lower().removesuffix(".").split(".")[::-1]


def _same(labels: list[str], wanted: list[str]) -> bool:
    return all(
        re.fullmatch(".*".join(map(re.escape, re.split(r"\*+", label))), name)
        for label, name in zip(labels, wanted, strict=True)
    )
