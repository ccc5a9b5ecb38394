"""Row 10: policies that close what they must and do not close what tenants need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.plan import controller_addresses, machine_addresses, service_vm_network
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.config.tenants import Tenant
from gpuclusters.core.finding import Path
from gpuclusters.tenancy.isolation import (
    LOCAL_ZONES,
    METADATA,
    NEVER_FOR_TENANTS,
    Range,
    around,
    containing,
    joined,
    literal,
    may_name,
    names,
    overlapping,
)

_WIDEST_PREFIX = 8
_SHOWN = 4


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


@rule(10, "caas.address-open-to-tenants", each=["nodes"])
def networks_hold_what_tenants_must_not_reach(config: CaasConfig) -> Iterable[Wrong]:
    if isinstance(config.hosts, ExistingHosts):
        yield from _held(config, "node-cidrs", "machines and servers", machine_addresses(config))
        controllers = controller_addresses(config)
        yield from _held(config, "bmc-cidrs", "management controllers", controllers)


def _held(
    config: CaasConfig, key: str, what: str, places: Iterable[tuple[Path, str]]
) -> Iterable[Wrong]:
    network = config.network
    stated = network.node_cidrs if key == "node-cidrs" else network.bmc_cidrs
    cluster = (config.kubernetes.pod_cidr, config.kubernetes.service_cidr)
    closed = [*network.node_cidrs, *network.bmc_cidrs, *cluster, *NEVER_FOR_TENANTS]
    open_now = [
        (path, host)
        for path, host in places
        # Where a name leads is not known here; there must be a range for what is given by name.
        if (not stated if (address := literal(host)) is None else not containing(address, closed))
    ]
    if open_now and not stated:
        hosts = [host for _, host in open_now]
        shown = ", ".join(hosts[:_SHOWN]) + (", …" if len(hosts) > _SHOWN else "")
        near = (around(address) for host in hosts if (address := literal(host)))
        guess = ", ".join(f'"{one}"' for one in joined(near))
        yield Wrong(
            ("network", key),
            f"is missing: nothing closes the network of the {what} to tenants: {shown}",
            f"write it, [{guess}] for example" if guess else "write it: address/length in quotes",
            NOTHING,
        )
        return
    for path, host in open_now:
        yield Wrong(
            path,
            f"is in no range that is closed to tenants: network.{key} is {', '.join(map(str, stated))}",
            f"add its network to network.{key}, or write the right address",
            show(host),
        )


@rule(10, "caas.egress-name-local", "tenants", each=["nodes"])
def names_are_not_local(config: CaasConfig, tenant: Tenant) -> Iterable[Wrong]:
    zones = (*LOCAL_ZONES, config.kubernetes.cluster_domain)
    known = (host for _, host in (*machine_addresses(config), *controller_addresses(config)))
    own = [host for host in dict.fromkeys(known) if literal(host) is None]
    for entry, name in enumerate(tenant.egress.fqdns):
        labels = name.removesuffix(".").split(".")
        zone = next((zone for zone in zones if may_name(name, zone)), None)
        host = next((host for host in own if names(name, host)), None)
        if labels[-1].isdigit():
            wrong = "is an address and not a name"
        elif zone is not None:
            wrong = f"stands for names of {zone}, which mean something in or beside the cluster"
        elif len(labels) == 1:
            wrong = "is one word, which means something in or beside the cluster"
        elif host is not None:
            wrong = f"stands for {host}, a machine of this configuration"
        else:
            continue
        remedy = "write public names of what the tenant needs, or remove it"
        yield Wrong(("egress", "fqdns", entry), wrong, remedy)


@rule(10, "caas.file-server-network", "tenants")
def file_servers_are_nothing_else(config: CaasConfig, tenant: Tenant) -> Iterable[Wrong]:
    storage = config.network.storage_cidrs
    known = ", ".join(map(str, storage))
    for entry, servers in enumerate(tenant.nfs.servers if tenant.nfs else ()):
        path: Path = ("nfs", "servers", entry)
        if not any(servers.subnet_of(network) for network in storage):
            yield Wrong(
                path,
                "is not within network.storage-cidrs",
                f"write a range within {known}" if known else "state network.storage-cidrs",
            )
        for what, networks in _closed(config).items():
            for network in overlapping(servers, networks):
                remedy = "write the addresses of the file servers alone"
                yield Wrong(path, f"meets {network}, {what}", remedy)


@rule(10, "caas.networks-overlap")
def cluster_networks_do_not_meet(config: CaasConfig) -> Iterable[Wrong]:
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    if pods.overlaps(services):
        yield Wrong(
            "kubernetes.service-cidr",
            f"meets pod-cidr, which is {pods}",
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
                    wrong = f"meets kubernetes.{name}, which is {other}"
                    yield Wrong(path, wrong, "write the machines' own network alone")
            if network.prefixlen < _WIDEST_PREFIX:
                wrong = f"is wider than a /{_WIDEST_PREFIX}"
                yield Wrong(path, wrong, "write the networks of this cluster's machines")


@rule(10, "caas.storage-network-denied")
def storage_is_apart_from_machines(config: CaasConfig) -> Iterable[Wrong]:
    network = config.network
    closed = {"node-cidrs": network.node_cidrs, "bmc-cidrs": network.bmc_cidrs}
    for entry, storage in enumerate(network.storage_cidrs):
        for key, ranges in closed.items():
            for other in overlapping(storage, ranges):
                yield Wrong(
                    ("network", "storage-cidrs", entry),
                    f"meets {other} of network.{key}, which is closed to tenants whatever their "
                    "policies allow",
                    "write the file servers' own range, and leave it out of the other",
                )
