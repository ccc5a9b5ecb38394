"""Rules of caas: names of tenants, what they may hold, run and mount, and what no policy of theirs opens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.plan import (
    controller_addresses,
    machine_addresses,
    namespace,
    overhead_cpu,
    overhead_gib,
    share,
)
from gpuclusters.config.rules.rule import Wrong, Wrongs, named_twice, repeats, rule
from gpuclusters.config.tenants import NfsMount, Tenant
from gpuclusters.core import naming
from gpuclusters.core.finding import Level, Path
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
from gpuclusters.tenancy.model import quota_keys

_GPUS_PER_NODE = 8


@rule("caas.tenant-twice", each=["tenants"])
def tenant_names_differ(config: CaasConfig) -> Wrongs:
    names = [tenant.name for tenant in config.tenants]
    return named_twice("tenants", names, "give every tenant a name of its own")


def _named(tenant: Tenant) -> str:
    """The key that a tenant's namespace comes from."""
    return "name" if tenant.namespace is None else "namespace"


@rule("caas.namespace-invalid", each=["tenants"])
def namespaces_are_valid(config: CaasConfig) -> Wrongs:
    for position, tenant in enumerate(config.tenants):
        name = namespace(config, tenant)
        if naming.is_dns_label(name):
            continue
        if len(name) > naming.LABEL_LENGTH:
            wrong = f"gives a namespace of {len(name)} characters; Kubernetes accepts {naming.LABEL_LENGTH}"
            remedy = "shorten the name or tenant-namespace-prefix, or state a namespace"
            yield Wrong(("tenants", position, _named(tenant)), wrong, remedy, show(name))
        else:
            wrong = f"gives {tenant.name} a namespace that Kubernetes does not accept"
            remedy = "begin it with a letter or digit, and use lower-case letters, digits and '-'"
            yield Wrong("tenant-namespace-prefix", wrong, remedy, show(name))


@rule("caas.namespace-taken", "tenants")
def namespaces_are_free(config: CaasConfig, tenant: Tenant) -> Wrongs:
    name = namespace(config, tenant)
    if naming.is_reserved_namespace(name) or name in config.programs.accounts.namespaces:
        wrong = "gives the tenant a namespace that belongs to the cluster"
        yield Wrong(_named(tenant), wrong, got=show(name))


@rule("caas.programs-namespace")
def programs_live_apart_from_tenants(config: CaasConfig) -> Wrongs:
    prefix = config.tenant_namespace_prefix
    if prefix and any(name.startswith(prefix) for name in config.programs.accounts.namespaces):
        wrong = f"begins with tenant-namespace-prefix ({prefix}), like the namespaces of tenants"
        yield Wrong("programs.namespace", wrong)


@rule("caas.namespace-shared", each=["tenants"])
def namespaces_differ(config: CaasConfig) -> Wrongs:
    names = [namespace(config, tenant) for tenant in config.tenants]
    for position, first in repeats(names):
        if config.tenants[position].name == config.tenants[first].name:
            continue  # said of the names already
        yield Wrong(
            ("tenants", position, _named(config.tenants[position])),
            f"gives the tenant the namespace of tenants[{first}]",
            got=show(names[position]),
        )


@rule("caas.quota-not-enforced", "tenants")
def quota_entries_are_enforced(config: CaasConfig, tenant: Tenant) -> Wrongs:
    ours = quota_keys(config.device_access.resource_name)
    for key in tenant.extra_quota:
        bare = key.removeprefix("limits.")
        if key in ours:
            wrong = "is set from the tenant's gpus, cpu, memory-gib, disk-gib, storage-gib and nfs.volumes"
            remedy = "remove it, and change those"
            yield Wrong(("extra-quota", key), wrong, remedy, f"the key {show(key)}")
        elif "/" in bare and not bare.startswith(("requests.", "count/")) and _is_extended(bare):
            wrong = "is never enforced: extended resources count under requests. alone"
            remedy = f"write requests.{bare}"
            yield Wrong(("extra-quota", key), wrong, remedy, f"the key {show(key)}")


def _is_extended(key: str) -> bool:
    return ".storageclass.storage.k8s.io/" not in key and ".deviceclass.resource.k8s.io/" not in key


def _overheads(config: CaasConfig) -> Mapping[str, tuple[str, int]]:
    """By field of a size: its unit, and what a VM takes of it beside its containers."""
    return {
        "memory_gib": ("GiB", overhead_gib(config)),
        "disk_gib": ("GiB", 0),
        "cpu": ("cores", overhead_cpu(config)),
    }


@rule("caas.quota-too-small", "tenants")
def quota_holds_one_pod(config: CaasConfig, tenant: Tenant) -> Wrongs:
    its = share(config, tenant)
    for name, (unit, overhead) in _overheads(config).items():
        key, beside = name.replace("_", "-"), " and its VM's overhead" if overhead else ""
        quota, least = getattr(its.total, name), getattr(its.default_container, name) + overhead
        if quota < least:
            wrong = f"is less than one default container{beside}, {least} {unit}"
            remedy = f"write {least} or more, or a smaller default-container.{key}"
            yield Wrong(key, wrong, remedy, show(quota))


@rule("caas.container-size", "tenants")
def container_sizes_are_in_order(config: CaasConfig, tenant: Tenant) -> Wrongs:
    if tenant.max_container is None:
        return
    its = share(config, tenant)
    for name, (_, overhead) in _overheads(config).items():
        key = name.replace("_", "-")
        default, most, total = (
            getattr(size, name) for size in (its.default_container, its.max_container, its.total)
        )
        path: Path = ("max-container", key)
        if most < default:
            wrong = f"is less than default-container.{key}, which is {default}"
            yield Wrong(path, wrong, f"write {default} or more", show(most))
        if most + overhead > total:
            does = f"and the VM's overhead of {overhead} do" if overhead else "does"
            remedy = f"write {max(total - overhead, 1)} or less, or raise the tenant's {key}"
            yield Wrong(path, f"{does} not fit into the quota of {total}", remedy, show(most))


@rule("caas.gpus-above-cluster", "tenants")
def gpu_quota_exists(config: CaasConfig, tenant: Tenant) -> Wrongs:
    total = len(config.nodes) * _GPUS_PER_NODE
    if tenant.gpus > total:
        wrong = f"is more than the cluster has, {total} on {len(config.nodes)} nodes"
        yield Wrong("gpus", wrong, f"write {total} or less, or add nodes")


@rule("caas.size-above-quota", "tenants")
def sizes_fit_the_quota(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    for entry, size in enumerate(tenant.sizes or ()):
        if size > tenant.gpus:
            yield Wrong(("sizes", entry), f"is more than the tenant's gpus, which is {tenant.gpus}")


@rule("caas.gpus-overpromised", level=Level.WARN)
def gpu_quotas_add_up(config: CaasConfig) -> Wrongs:
    total = len(config.nodes) * _GPUS_PER_NODE
    promised = sum(tenant.gpus for tenant in config.tenants)
    if promised > total and all(tenant.gpus <= total for tenant in config.tenants):
        wrong = f"are promised more GPUs than the cluster has, {total}"
        yield Wrong("tenants", wrong, got=f"{promised} in all")


@rule("caas.volumes-above-quota", "tenants")
def volumes_fit_the_quota(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    total = sum(volume.size_gib for volume in tenant.volumes)
    if total > tenant.storage_gib:
        wrong = f"is less than the tenant's nfs.volumes ask for, {total} GiB: the last claims are refused"
        yield Wrong("storage-gib", wrong, f"write {total} or more, or make the volumes smaller")


@rule("caas.volume-mounted-by-guest", "tenants")
def volumes_are_mounted_on_the_machine(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    if tenant.nfs and tenant.nfs.volumes and tenant.nfs.mounted_by is NfsMount.GUEST:
        wrong = "are volumes of the kubelet, while mounted-by is guest"
        yield Wrong("nfs.volumes", wrong, got=show([volume.name for volume in tenant.nfs.volumes]))


@rule("caas.volume-server", "tenants")
def volumes_are_on_the_tenants_servers(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    for entry, volume in enumerate(tenant.volumes):
        servers = tenant.nfs.servers if tenant.nfs else ()
        if not any(volume.server in network for network in servers):
            yield Wrong(("nfs", "volumes", entry, "server"), "is none of the tenant's nfs.servers")


@rule("caas.volume-twice", "tenants")
def volumes_have_names_of_their_own(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    names = Counter(volume.name for volume in tenant.volumes)
    for entry, volume in enumerate(tenant.volumes):
        if names[volume.name] > 1:
            wrong = "is the name of another volume of the tenant too"
            yield Wrong(("nfs", "volumes", entry, "name"), wrong)


@rule("caas.mounted-files-copied", "tenants")
def mounted_files_stay_live(config: CaasConfig, tenant: Tenant) -> Wrongs:
    shim = config.kata.shim
    if tenant.nfs and tenant.nfs.mounted_by is NfsMount.KUBELET and not shim.shares_files:
        wrong = f"does not work with {shim.value}, which copies files into the VM once"
        yield Wrong("nfs.mounted-by", wrong)


@rule("caas.any-registry", "tenants", level=Level.WARN)
def images_come_from_listed_registries(config: CaasConfig, tenant: Tenant) -> Wrongs:
    if not tenant.images.allowed and not isinstance(config.hosts, LabHosts):
        wrong = "is empty: the tenant chooses which host the machines contact, at any address"
        yield Wrong("images.allowed", wrong)


@rule("caas.registry-not-allowed", "tenants")
def passwords_are_for_allowed_registries(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    known = {source.partition("/")[0] for source in tenant.images.allowed}
    for entry, name in enumerate(tenant.images.registry_auth):
        if known and name not in known:
            wrong = "is no registry that the tenant's images.allowed names"
            remedy = f"write one of {', '.join(sorted(known))}, or add it there"
            yield Wrong(("images", "registry-auth", entry), wrong, remedy, show(name))


_WIDEST_PREFIX = 8
_SHOWN = 4


def _closed(config: CaasConfig) -> Mapping[str, tuple[Range, ...]]:
    """Ranges that no tenant may be given, by the key they come from."""
    return {
        "kubernetes.pod-cidr, where other tenants are": (config.kubernetes.pod_cidr,),
        "kubernetes.service-cidr, where the cluster's own services are": (
            config.kubernetes.service_cidr,
        ),
        "service-vm.network": (config.service_vm.network.addresses,),
        "network.node-cidrs": config.network.node_cidrs,
        "network.bmc-cidrs": config.network.bmc_cidrs,
        "the link-local range of metadata services": (METADATA,),
    }


@rule("caas.address-open-to-tenants", each=["nodes"])
def networks_hold_what_tenants_must_not_reach(config: CaasConfig) -> Wrongs:
    if isinstance(config.hosts, ExistingHosts):
        yield from _held(config, "node-cidrs", "machines and servers", machine_addresses(config))
        controllers = controller_addresses(config)
        yield from _held(config, "bmc-cidrs", "management controllers", controllers)


def _held(config: CaasConfig, key: str, what: str, places: Iterable[tuple[Path, str]]) -> Wrongs:
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
        wrong = f"is in no range that is closed to tenants: network.{key} is {', '.join(map(str, stated))}"
        remedy = f"add its network to network.{key}, or write the right address"
        yield Wrong(path, wrong, remedy, show(host))


@rule("caas.egress-name-local", "tenants", each=["nodes"])
def names_are_not_local(config: CaasConfig, tenant: Tenant) -> Wrongs:
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
        yield Wrong(("egress", "fqdns", entry), wrong)


@rule("caas.file-server-network", "tenants")
def file_servers_are_nothing_else(config: CaasConfig, tenant: Tenant) -> Wrongs:
    storage = config.network.storage_cidrs
    known = ", ".join(map(str, storage))
    for entry, servers in enumerate(tenant.nfs.servers if tenant.nfs else ()):
        path: Path = ("nfs", "servers", entry)
        if not any(servers.subnet_of(network) for network in storage):
            remedy = f"write a range within {known}" if known else "state network.storage-cidrs"
            yield Wrong(path, "is not within network.storage-cidrs", remedy)
        for what, networks in _closed(config).items():
            for network in overlapping(servers, networks):
                remedy = "write the addresses of the file servers alone"
                yield Wrong(path, f"meets {network}, {what}", remedy)


@rule("caas.networks-overlap")
def cluster_networks_do_not_meet(config: CaasConfig) -> Wrongs:
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    if pods.overlaps(services):
        remedy = "write the range that the API server was started with"
        yield Wrong("kubernetes.service-cidr", f"meets pod-cidr, which is {pods}", remedy)
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


@rule("caas.storage-network-denied")
def storage_is_apart_from_machines(config: CaasConfig) -> Wrongs:
    network = config.network
    closed = {"node-cidrs": network.node_cidrs, "bmc-cidrs": network.bmc_cidrs}
    for entry, storage in enumerate(network.storage_cidrs):
        for key, ranges in closed.items():
            for other in overlapping(storage, ranges):
                wrong = f"meets {other} of network.{key}, which is closed to tenants"
                yield Wrong(("network", "storage-cidrs", entry), wrong)
