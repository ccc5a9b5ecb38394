"""Row 10: policies that close what they must and do not close what tenants need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.places import (
    likely,
    machines,
    management_controllers,
    service_vm_network,
)
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.tenancy.ranges import (
    LOCAL_ZONES,
    METADATA,
    NEVER_FOR_TENANTS,
    Range,
    containing,
    joined,
    literal,
    may_name,
    names,
    overlapping,
)

_WIDEST_PREFIX = 8
_SHOWN = 4

Places = Callable[[CaasConfig], Iterable[tuple[Path, str]]]


def _closed(config: CaasConfig) -> Mapping[str, tuple[Range, ...]]:
    """Ranges that no tenant may be given, by the key they come from."""
    return {
        "kubernetes.pod-cidr, where other tenants are": (config.kubernetes.pod_cidr,),
        "kubernetes.service-cidr, where the cluster's own services are": (
            config.kubernetes.service_cidr,
        ),
        "service-vm.network": (service_vm_network(config),),
        "network.node-cidrs": config.network.node_cidrs,
        "network.bmc-cidrs": config.network.bmc_cidrs,
        "the link-local range of metadata services": (METADATA,),
    }


@rule(10, "caas.services-unreachable")
def virtual_machines_reach_services(config: CaasConfig) -> Iterable[Finding]:
    network = config.network
    if network.kube_proxy_replacement and not network.socket_lb_host_namespace_only:
        yield finding(
            ("network", "socket-lb-host-namespace-only"),
            "is off while kube-proxy-replacement is on: VMs would reach no service, DNS included",
            "false",
            "write true, and set socketLB.hostNamespaceOnly=true in Cilium",
        )


@rule(10, "caas.dns-proxy-off")
def names_need_the_dns_proxy(config: CaasConfig) -> Iterable[Finding]:
    if not config.network.dns_proxy:
        yield finding(
            ("network", "dns-proxy"),
            "is off, so Cilium refuses the policy of every tenant: all have rules about names",
            "false",
            "write true, and set l7Proxy=true in Cilium",
        )


@rule(10, "caas.address-open-to-tenants", each=["nodes"])
def networks_hold_what_tenants_must_not_reach(config: CaasConfig) -> Iterable[Finding]:
    if isinstance(config.hosts, ExistingHosts):
        yield from _held(config, "node-cidrs", "machines and servers", machines)
        yield from _held(config, "bmc-cidrs", "management controllers", management_controllers)


def _held(config: CaasConfig, key: str, what: str, places: Places) -> Iterable[Finding]:
    stated = {"node-cidrs": config.network.node_cidrs, "bmc-cidrs": config.network.bmc_cidrs}
    cluster = (config.kubernetes.pod_cidr, config.kubernetes.service_cidr)
    closed = [*stated["node-cidrs"], *stated["bmc-cidrs"], *cluster, *NEVER_FOR_TENANTS]
    known = list(places(config))
    open_now = [
        (path, host)
        for path, host in known
        # Where a name leads is not known here; there must be a range for what is given by name.
        if (
            not stated[key]
            if (address := literal(host)) is None
            else not containing(address, closed)
        )
    ]
    if not open_now:
        return
    if not stated[key]:
        hosts = [host for _, host in open_now]
        shown = ", ".join(hosts[:_SHOWN]) + (", …" if len(hosts) > _SHOWN else "")
        guess = [f'"{one}"' for one in joined(likely(hosts))]
        yield finding(
            ("network", key),
            f"is missing: nothing closes the network of the {what} to tenants: {shown}",
            NOTHING,
            f"write it, [{', '.join(guess)}] for example"
            if guess
            else "write it: address/length in quotes",
        )
        return
    for path, host in open_now:
        yield finding(
            path,
            f"is in no range that is closed to tenants: network.{key} is {', '.join(map(str, stated[key]))}",
            show(host),
            f"add its network to network.{key}, or write the right address",
        )


def _is_everything(labels: list[str]) -> bool:
    return "*" in labels[-1] or (len(labels) > 1 and set("".join(labels[:-1])) == {"*"})


@rule(10, "caas.egress-name-too-wide", each=["tenants"])
def names_are_not_everything(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        for entry, name in enumerate(tenant.egress.fqdns):
            labels = name.removesuffix(".").split(".")
            if _is_everything(labels):
                yield finding(
                    ("tenants", position, "egress", "fqdns", entry),
                    "stands for a whole top-level domain or more",
                    show(name),
                    "write the names that are needed, or egress.internet: true",
                )


@rule(10, "caas.egress-name-local", each=["tenants", "nodes"])
def names_are_not_local(config: CaasConfig) -> Iterable[Finding]:
    zones = (*LOCAL_ZONES, config.kubernetes.cluster_domain)
    own = {
        host: "a machine of this configuration"
        for _, host in (*machines(config), *management_controllers(config))
        if literal(host) is None
    }
    for position, tenant in enumerate(config.tenants):
        for entry, name in enumerate(tenant.egress.fqdns):
            labels = name.removesuffix(".").split(".")
            if _is_everything(labels):
                continue  # said by the rule above
            zone = next((zone for zone in zones if may_name(name, zone)), None)
            host = next((host for host in own if names(name, host)), None)
            if labels[-1].isdigit():
                wrong = "is an address and not a name"
            elif zone is not None:
                wrong = f"stands for names of {zone}, which mean something in or beside the cluster"
            elif len(labels) == 1:
                wrong = "is one word, which means something in or beside the cluster"
            elif host is not None:
                wrong = f"stands for {host}, {own[host]}"
            else:
                continue
            yield finding(
                ("tenants", position, "egress", "fqdns", entry),
                wrong,
                show(name),
                "write public names of what the tenant needs, or remove it",
            )


@rule(10, "caas.file-server-network", each=["tenants"])
def file_servers_are_nothing_else(config: CaasConfig) -> Iterable[Finding]:
    storage = config.network.storage_cidrs
    for position, tenant in enumerate(config.tenants):
        for entry, servers in enumerate(tenant.nfs.servers if tenant.nfs else ()):
            path: Path = ("tenants", position, "nfs", "servers", entry)
            if not any(servers.subnet_of(network) for network in storage):
                known = ", ".join(str(network) for network in storage)
                yield finding(
                    path,
                    "is not within network.storage-cidrs",
                    show(str(servers)),
                    f"write a range within {known}" if known else "state network.storage-cidrs",
                )
            for what, networks in _closed(config).items():
                for network in overlapping(servers, networks):
                    yield finding(
                        path,
                        f"meets {network}, {what}",
                        show(str(servers)),
                        "write the addresses of the file servers alone",
                    )


@rule(10, "caas.networks-overlap")
def cluster_networks_do_not_meet(config: CaasConfig) -> Iterable[Finding]:
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    if pods.overlaps(services):
        yield finding(
            ("kubernetes", "service-cidr"),
            f"meets pod-cidr, which is {pods}",
            show(str(services)),
            "write the range that the API server was started with",
        )
    keys: Mapping[str, tuple[Range, ...]] = {
        "node-cidrs": config.network.node_cidrs,
        "bmc-cidrs": config.network.bmc_cidrs,
        "storage-cidrs": config.network.storage_cidrs,
    }
    for key, networks in keys.items():
        for entry, network in enumerate(networks):
            path: Path = ("network", key, entry)
            for other, name in ((pods, "pod-cidr"), (services, "service-cidr")):
                if network.overlaps(other):
                    yield finding(
                        path,
                        f"meets kubernetes.{name}, which is {other}",
                        show(str(network)),
                        "write the machines' own network alone",
                    )
            if network.prefixlen < _WIDEST_PREFIX:
                yield finding(
                    path,
                    f"is wider than a /{_WIDEST_PREFIX}",
                    show(str(network)),
                    "write the networks of this cluster's machines",
                )


@rule(10, "caas.storage-network-denied")
def storage_is_apart_from_machines(config: CaasConfig) -> Iterable[Finding]:
    for entry, storage in enumerate(config.network.storage_cidrs):
        for key, networks in (
            ("node-cidrs", config.network.node_cidrs),
            ("bmc-cidrs", config.network.bmc_cidrs),
        ):
            for network in overlapping(storage, networks):
                yield finding(
                    ("network", "storage-cidrs", entry),
                    f"meets {network} of network.{key}, which is closed to tenants whatever their "
                    "policies allow",
                    show(str(storage)),
                    "write the file servers' own range, and leave it out of the other",
                )
