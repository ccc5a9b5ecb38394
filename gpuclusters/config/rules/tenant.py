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
from gpuclusters.container_api import image
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
from gpuclusters.tenancy.on_demand import PLACEHOLDER

_GPUS_PER_NODE = 8


@rule("caas.tenant-twice", each=["tenants"])
def tenant_names_differ(config: CaasConfig) -> Wrongs:
    names = [tenant.name for tenant in config.tenants]
    return named_twice("tenants", names)


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
            path, most = ("tenants", position, _named(tenant)), naming.LABEL_LENGTH
            yield Wrong(path, "long", got=show(name), length=len(name), most=most)
        else:
            yield Wrong("tenant-namespace-prefix", "form", got=show(name), name=tenant.name)


@rule("caas.namespace-taken", "tenants")
def namespaces_are_free(config: CaasConfig, tenant: Tenant) -> Wrongs:
    name, own = namespace(config, tenant), config.programs.accounts.namespaces
    # Of those on demand it is said of what their names begin with.
    if tenant in config.tenants and (naming.is_reserved_namespace(name) or name in own):
        yield Wrong(_named(tenant), got=show(name))


@rule("caas.on-demand-namespaces")
def namespaces_on_demand_are_nobody_elses(config: CaasConfig) -> Wrongs:
    prefix = config.tenant_namespace_prefix
    one = f"{prefix}a"
    free = naming.is_dns_label(one) and not naming.is_reserved_namespace(one)
    if config.tenants_on_demand is not None and not (prefix and free):
        yield Wrong("tenant-namespace-prefix")


@rule("caas.programs-namespace")
def programs_live_apart_from_tenants(config: CaasConfig) -> Wrongs:
    prefix = config.tenant_namespace_prefix
    if prefix and any(name.startswith(prefix) for name in config.programs.accounts.namespaces):
        yield Wrong("programs.namespace", prefix=prefix)


@rule("caas.namespace-shared", each=["tenants"])
def namespaces_differ(config: CaasConfig) -> Wrongs:
    names = [namespace(config, tenant) for tenant in config.tenants]
    for position, first in repeats(names):
        if config.tenants[position].name == config.tenants[first].name:
            continue  # said of the names already
        yield Wrong(
            ("tenants", position, _named(config.tenants[position])),
            got=show(names[position]),
            first=first,
        )


@rule("caas.quota-not-enforced", "tenants")
def quota_entries_are_enforced(config: CaasConfig, tenant: Tenant) -> Wrongs:
    ours = quota_keys(config.device_access.resource_name)
    for key in tenant.extra_quota:
        bare = key.removeprefix("limits.")
        if key in ours:
            yield Wrong(("extra-quota", key), "ours", got=f"the key {show(key)}")
        elif "/" in bare and not bare.startswith(("requests.", "count/")) and _is_extended(bare):
            yield Wrong(("extra-quota", key), "never", got=f"the key {show(key)}", bare=bare)


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
            yield Wrong(key, got=show(quota), beside=beside, least=least, unit=unit, key=key)


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
            yield Wrong(path, "below-default", got=show(most), key=key, default=default)
        if most + overhead > total:
            does = f"and the VM's overhead of {overhead} do" if overhead else "does"
            yield Wrong(
                path,
                "above-quota",
                got=show(most),
                does=does,
                total=total,
                left=max(total - overhead, 1),
                key=key,
            )


@rule("caas.gpus-above-cluster", "tenants")
def gpu_quota_exists(config: CaasConfig, tenant: Tenant) -> Wrongs:
    total = len(config.nodes) * _GPUS_PER_NODE
    if tenant.gpus > total:
        yield Wrong("gpus", total=total, nodes=len(config.nodes))


@rule("caas.size-above-quota", "tenants")
def sizes_fit_the_quota(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    for entry, size in enumerate(tenant.sizes or ()):
        if size > tenant.gpus:
            yield Wrong(("sizes", entry), gpus=tenant.gpus)


@rule("caas.gpus-overpromised", level=Level.WARN)
def gpu_quotas_add_up(config: CaasConfig) -> Wrongs:
    total = len(config.nodes) * _GPUS_PER_NODE
    more = config.tenants_on_demand
    promised = sum(tenant.gpus for tenant in config.tenants) + (
        more.gpus * more.most if more else 0
    )
    if promised > total and all(tenant.gpus <= total for tenant in config.tenants):
        yield Wrong("tenants", got=f"{promised} in all", total=total)


@rule("caas.volumes-above-quota", "tenants")
def volumes_fit_the_quota(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    total = sum(volume.size_gib for volume in tenant.volumes)
    if total > tenant.storage_gib:
        yield Wrong("storage-gib", total=total)


@rule("caas.volume-mounted-by-guest", "tenants")
def volumes_are_mounted_on_the_machine(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    if tenant.nfs and tenant.nfs.volumes and tenant.nfs.mounted_by is NfsMount.GUEST:
        yield Wrong("nfs.volumes", got=show([volume.name for volume in tenant.nfs.volumes]))


@rule("caas.volume-server", "tenants")
def volumes_are_on_the_tenants_servers(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    for entry, volume in enumerate(tenant.volumes):
        servers = tenant.nfs.servers if tenant.nfs else ()
        if not any(volume.server in network for network in servers):
            yield Wrong(("nfs", "volumes", entry, "server"))


@rule("caas.volume-twice", "tenants")
def volumes_have_names_of_their_own(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    names = Counter(volume.name for volume in tenant.volumes)
    for entry, volume in enumerate(tenant.volumes):
        if names[volume.name] > 1:
            yield Wrong(("nfs", "volumes", entry, "name"))


@rule("caas.mounted-files-copied", "tenants")
def mounted_files_stay_live(config: CaasConfig, tenant: Tenant) -> Wrongs:
    shim = config.kata.shim
    if tenant.nfs and tenant.nfs.mounted_by is NfsMount.KUBELET and not shim.shares_files:
        yield Wrong("nfs.mounted-by", value=shim.value)


@rule("caas.any-registry", "tenants", level=Level.WARN)
def images_come_from_listed_registries(config: CaasConfig, tenant: Tenant) -> Wrongs:
    if not tenant.images.allowed and not isinstance(config.hosts, LabHosts):
        yield Wrong("images.allowed")


@rule("caas.registry-not-allowed", "tenants")
def passwords_are_for_allowed_registries(_config: CaasConfig, tenant: Tenant) -> Wrongs:
    known = {source.partition("/")[0] for source in tenant.images.allowed}
    for entry, name in enumerate(tenant.images.registry_auth):
        if known and name not in known:
            yield Wrong(("images", "registry-auth", entry), got=show(name), known=sorted(known))


@rule("caas.proof-tenant", each=["tenants"])
def proof_is_run_as_a_tenant(config: CaasConfig) -> Wrongs:
    names = [tenant.name for tenant in config.tenants]
    if config.tenants_on_demand is None and config.proof and config.proof.tenant not in names:
        yield Wrong("proof.tenant", names=names or "of whom there is none")


@rule("caas.proof-image", each=["tenants"])
def proof_is_run_with_an_allowed_image(config: CaasConfig) -> Wrongs:
    proof = config.proof
    if proof is None:
        return
    declared = proof.tenant in [tenant.name for tenant in config.tenants]
    for tenant in config.shares:
        if tenant.name != (proof.tenant if declared else PLACEHOLDER):
            continue
        allowed = tenant.images.allowed
        if not image.is_allowed(image.full(proof.image), allowed):
            yield Wrong("proof.image", tenant=proof.tenant, allowance=image.allowance(allowed))


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
        case = "unstated" if guess else "unknown"
        yield Wrong(("network", key), case, got=NOTHING, what=what, shown=shown, guess=guess)
        return
    for path, host in open_now:
        yield Wrong(path, "outside", got=show(host), key=key, stated=stated)


@rule("caas.egress-name-local", "tenants", each=["nodes"])
def names_are_not_local(config: CaasConfig, tenant: Tenant) -> Wrongs:
    zones = (*LOCAL_ZONES, config.kubernetes.cluster_domain)
    known = (host for _, host in (*machine_addresses(config), *controller_addresses(config)))
    own = [host for host in dict.fromkeys(known) if literal(host) is None]
    for entry, name in enumerate(tenant.egress.fqdns):
        labels = name.removesuffix(".").split(".")
        zone = next((zone for zone in zones if may_name(name, zone)), None)
        host = next((host for host in own if names(name, host)), None)
        cases = {
            "address": labels[-1].isdigit(),
            "zone": zone is not None,
            "one-word": len(labels) == 1,
            "machine": host is not None,
        }
        if case := next((case for case, found in cases.items() if found), None):
            yield Wrong(("egress", "fqdns", entry), case, zone=zone, host=host)


@rule("caas.file-server-network", "tenants")
def file_servers_are_nothing_else(config: CaasConfig, tenant: Tenant) -> Wrongs:
    storage = config.network.storage_cidrs
    for entry, servers in enumerate(tenant.nfs.servers if tenant.nfs else ()):
        path: Path = ("nfs", "servers", entry)
        if not any(servers.subnet_of(network) for network in storage):
            yield Wrong(path, "outside" if storage else "no-storage", storage=storage)
        for what, networks in _closed(config).items():
            for network in overlapping(servers, networks):
                yield Wrong(path, "meets", network=network, what=what)


@rule("caas.networks-overlap")
def cluster_networks_do_not_meet(config: CaasConfig) -> Wrongs:
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    if pods.overlaps(services):
        yield Wrong("kubernetes.service-cidr", "services", pods=pods)
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
                    yield Wrong(path, "cluster", name=name, other=other)
            if network.prefixlen < _WIDEST_PREFIX:
                yield Wrong(path, "wide", widest_prefix=_WIDEST_PREFIX)


@rule("caas.storage-network-denied")
def storage_is_apart_from_machines(config: CaasConfig) -> Wrongs:
    network = config.network
    closed = {"node-cidrs": network.node_cidrs, "bmc-cidrs": network.bmc_cidrs}
    for entry, storage in enumerate(network.storage_cidrs):
        for key, ranges in closed.items():
            for other in overlapping(storage, ranges):
                yield Wrong(("network", "storage-cidrs", entry), other=other, key=key)
