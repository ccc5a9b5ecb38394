"""Row 10: policies that close what they must and do not close what tenants need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.rules.rule import rule
from gpuclusters.domain.network import METADATA, overlapping

_WIDEST_PREFIX = 8


def _closed(config: CaasConfig) -> Mapping[str, tuple[IPv4Network, ...]]:
    """Ranges that no tenant may be given, by the key they come from."""
    return {
        "kubernetes.pod-cidr, where other tenants are": (config.kubernetes.pod_cidr,),
        "kubernetes.service-cidr, where the cluster's own services are": (
            config.kubernetes.service_cidr,
        ),
        "network.node-cidrs": config.network.node_cidrs,
        "network.bmc-cidrs": config.network.bmc_cidrs,
        "the link-local range of metadata services": (METADATA,),
    }


@rule(10, needs=["network"])
def virtual_machines_reach_services(config: CaasConfig) -> Iterable[Flaw]:
    """Cilium's socket load balancer does not see sockets within a VM, so it must keep to the host."""
    network = config.network
    if network.kube_proxy_replacement and not network.socket_lb_host_namespace_only:
        yield Flaw(
            ("network", "socket-lb-host-namespace-only"),
            "is off while kube-proxy-replacement is on: VMs would reach no service, DNS included",
            "false",
            "write true, and set socketLB.hostNamespaceOnly=true in Cilium",
        )


@rule(10, needs=["network"])
def names_need_the_dns_proxy(config: CaasConfig) -> Iterable[Flaw]:
    """Tenants reach DNS through Cilium's proxy; without it Cilium takes none of their policies.

    Source: Cilium 1.20, `l7Proxy`: a policy with DNS rules is refused while it is off.
    """
    if not config.network.dns_proxy:
        yield Flaw(
            ("network", "dns-proxy"),
            "is off, so Cilium refuses the policy of every tenant: all have rules about names",
            "false",
            "write true, and set l7Proxy=true in Cilium",
        )


@rule(10, each=["tenants"])
def names_are_not_everything(config: CaasConfig) -> Iterable[Flaw]:
    """A name whose last part is a wildcard matches anything: the internet by another key."""
    for position, tenant in enumerate(config.tenants):
        for entry, name in enumerate(tenant.egress.fqdns):
            labels = name.removesuffix(".").split(".")
            if "*" in labels[-1] or (len(labels) == 2 and set(labels[0]) == {"*"}):
                yield Flaw(
                    ("tenants", position, "egress", "fqdns", entry),
                    "stands for a whole top-level domain or more",
                    show(name),
                    "write the names that are needed, or egress.internet: true",
                )


@rule(10, needs=["network", "kubernetes"], each=["tenants"])
def file_servers_are_nothing_else(config: CaasConfig) -> Iterable[Flaw]:
    """A tenant's file servers are in a storage network, and nowhere that is closed to tenants."""
    storage = config.network.storage_cidrs
    for position, tenant in enumerate(config.tenants):
        for entry, servers in enumerate(tenant.nfs.servers if tenant.nfs else ()):
            path: Path = ("tenants", position, "nfs", "servers", entry)
            if not any(servers.subnet_of(network) for network in storage):
                known = ", ".join(str(network) for network in storage)
                yield Flaw(
                    path,
                    "is not within network.storage-cidrs",
                    show(str(servers)),
                    f"write a range within {known}" if known else "state network.storage-cidrs",
                )
            for what, networks in _closed(config).items():
                for network in overlapping(servers, networks):
                    yield Flaw(
                        path,
                        f"meets {network}, {what}",
                        show(str(servers)),
                        "write the addresses of the file servers alone",
                    )


@rule(10, needs=["network", "kubernetes"])
def cluster_networks_do_not_meet(config: CaasConfig) -> Iterable[Flaw]:
    """Pods, services and machines have different addresses, else a denial hits the wrong ones."""
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    if pods.overlaps(services):
        yield Flaw(
            ("kubernetes", "service-cidr"),
            f"meets pod-cidr, which is {pods}",
            show(str(services)),
            "write the range that the API server was started with",
        )
    keys = {
        "node-cidrs": config.network.node_cidrs,
        "bmc-cidrs": config.network.bmc_cidrs,
        "storage-cidrs": config.network.storage_cidrs,
    }
    for key, networks in keys.items():
        for entry, network in enumerate(networks):
            path: Path = ("network", key, entry)
            for other, name in ((pods, "pod-cidr"), (services, "service-cidr")):
                if network.overlaps(other):
                    yield Flaw(
                        path,
                        f"meets kubernetes.{name}, which is {other}",
                        show(str(network)),
                        "write the machines' own network alone",
                    )
            if network.prefixlen < _WIDEST_PREFIX:
                yield Flaw(
                    path,
                    f"is wider than a /{_WIDEST_PREFIX}",
                    show(str(network)),
                    "write the networks of this cluster's machines",
                )


@rule(10, needs=["network"])
def storage_is_apart_from_machines(config: CaasConfig) -> Iterable[Flaw]:
    """Storage is not in a network that is denied: in Cilium a denial outweighs every allowance."""
    for entry, storage in enumerate(config.network.storage_cidrs):
        for key, networks in (
            ("node-cidrs", config.network.node_cidrs),
            ("bmc-cidrs", config.network.bmc_cidrs),
        ):
            for network in overlapping(storage, networks):
                yield Flaw(
                    ("network", "storage-cidrs", entry),
                    f"meets {network} of network.{key}, which is closed to tenants whatever their "
                    "policies allow",
                    show(str(storage)),
                    "write the file servers' own range, and leave it out of the other",
                )


RULES = (
    virtual_machines_reach_services,
    names_need_the_dns_proxy,
    names_are_not_everything,
    file_servers_are_nothing_else,
    cluster_networks_do_not_meet,
    storage_is_apart_from_machines,
)
