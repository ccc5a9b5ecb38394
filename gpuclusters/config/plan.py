"""What a valid configuration means, with presets and defaults filled in: what the stack declares.

Everything here is pure. `plan` of a configuration that `stack.parse` accepted does not fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.nodes import BY_LEASE, Node
from gpuclusters.config.places import closed_to_tenants
from gpuclusters.config.tenants import ContainerSize, Egress, NfsMount, Tenant
from gpuclusters.core import naming
from gpuclusters.domain.platforms import PRESETS, Preset
from gpuclusters.domain.versions import KATA_RELEASES
from gpuclusters.fabric.table import (
    BOARDS,
    Board,
    LayoutError,
    MapSource,
    Partition,
    PartitionTable,
    plan_layout,
    table_for,
)
from gpuclusters.kata import model as sizing
from gpuclusters.maintenance.decide import Drain
from gpuclusters.tenancy.model import (
    CPU_PER_GPU,
    DISK_GIB_PER_CONTAINER,
    DISK_GIB_PER_GPU,
    MEMORY_GIB_PER_GPU,
    Share,
    Size,
)
from gpuclusters.tenancy.ranges import joined


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One machine: where its GPUs are and how its board is cut."""

    name: str
    board: Board
    partitions: tuple[Partition, ...]
    """The partitions that may be leased."""
    layout: tuple[int, ...] | None
    """Sizes, if the configuration names sizes and no numbers: then `partitions` are those of a board on which
    nothing is active, and another cut into the same sizes may take fewer switches."""
    declared: bool
    """Whether they are a declared cut, each GPU in exactly one, which stays active while nobody has it."""
    maintenance: Drain | None
    """What becomes of its containers while it is out of service; None when it serves."""


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """One tenant: where it lives, what it may hold, where it may connect to."""

    name: str
    namespace: str
    share: Share
    quota: Mapping[str, str]
    """`hard` of its ResourceQuota."""
    sizes: tuple[int, ...]
    """How many GPUs one container may ask for."""
    egress: Egress
    images: tuple[str, ...]
    """Registries, and paths at registries, that its images come from; empty for any public registry."""
    registry_auth: tuple[str, ...]
    """Registries that it has passwords for."""
    nfs_cidrs: tuple[str, ...]
    """File servers that its own VMs mount; those of the kubelet need no rule."""


@dataclass(frozen=True, slots=True)
class CaasPlan:
    """All of a cluster."""

    preset: Preset
    nodes: tuple[NodePlan, ...]
    tenants: tuple[TenantPlan, ...]
    sizes: tuple[int, ...]
    """Partition sizes that the cluster offers."""
    fabric_manager_host: str
    """Address of the fabric manager's API as seen from each machine."""
    infrastructure_cidrs: tuple[str, ...]
    """Machines, management controllers, service VMs, pods and services: denied to every tenant."""
    storage_cidrs: tuple[str, ...]
    """Networks of file servers: no part of "the internet", open to a tenant only where its own servers are.
    Not to be denied as a whole, because in Cilium a denial outweighs every allowance."""

    @property
    def capacity(self) -> Mapping[int, int]:
        """How many partitions of each size the cluster has.

        Without a declared cut they overlap: so many there can be while there is no other size.
        """
        all_sizes = [partition.size for node in self.nodes for partition in node.partitions]
        return {size: all_sizes.count(size) for size in self.sizes}


def preset(config: CaasConfig) -> Preset:
    """What is known of the cluster's machines."""
    return PRESETS[config.platform]


def table(config: CaasConfig) -> PartitionTable:
    """The partitions that the cluster's boards offer."""
    return table_for(preset(config).baseboard, config.own_table)


def module_map(config: CaasConfig) -> MapSource:
    """Whether the machines' GPUs say in which module they sit, or the configuration is believed."""
    return BOARDS[preset(config).baseboard].module_map


def guest_driver(config: CaasConfig) -> str | None:
    """The NVIDIA driver in the guests' image; None where nobody says."""
    release = KATA_RELEASES.get(config.versions.kata)
    return config.versions.guest_driver or (release.guest_driver if release else None)


def board(config: CaasConfig, node: Node) -> Board:
    """The node's PCI functions: its own where it states them, else the preset's."""
    known = preset(config)
    gpus = known.gpus if node.gpus is None else {int(n): pci for n, pci in node.gpus.items()}
    return Board(
        gpus=gpus,
        switches=known.switches if node.switches is None else node.switches,
        extra_functions=(
            known.extra_functions if node.extra_functions is None else node.extra_functions
        ),
    )


def partitions(config: CaasConfig, node: Node) -> tuple[Partition, ...]:
    """The partitions of a node that may be leased.

    Raises:
        LayoutError: the table cannot give them, or the node states none where it must.
    """
    known = table(config)
    if node.partitions is not None:
        return tuple(known.partition(number) for number in sorted(node.partitions))
    if node.partition_layout is not None:
        return plan_layout(known, node.partition_layout)
    layout = config.partition_layout
    if layout == BY_LEASE:
        return known.partitions
    if isinstance(layout, str):
        raise LayoutError("a mixed layout needs one on every node")
    return plan_layout(known, layout)


def layout(config: CaasConfig, node: Node) -> tuple[int, ...] | None:
    """The sizes into which a node's board is cut; None if numbers are stated, or leases alone decide."""
    if node.partitions is not None:
        return None
    if node.partition_layout is not None:
        return tuple(node.partition_layout)
    return None if isinstance(config.partition_layout, str) else tuple(config.partition_layout)


def most_guests(config: CaasConfig, node: Node) -> tuple[int, ...]:
    """Partition sizes of a node while it carries as many VMs as it can; they never overlap.

    Raises:
        LayoutError: as `partitions`.
    """
    if config.partition_layout == BY_LEASE:
        known = table(config)
        return (min(known.sizes),) * (max(known.sizes) // min(known.sizes))
    return tuple(partition.size for partition in partitions(config, node))


def cut_sizes(config: CaasConfig) -> tuple[int, ...]:
    """Sizes of the partitions that the valid layouts give, smallest first."""
    sizes: set[int] = set()
    for node in config.nodes:
        try:
            sizes |= {partition.size for partition in partitions(config, node)}
        except LayoutError:
            continue
    return tuple(sorted(sizes))


def namespace(config: CaasConfig, tenant: Tenant) -> str:
    """The tenant's namespace."""
    if tenant.namespace is not None:
        return tenant.namespace
    return naming.tenant_namespace(config.tenant_namespace_prefix, tenant.name)


def overhead_gib(config: CaasConfig) -> int:
    """Memory of a VM beside its containers, in whole GiB."""
    return -(-config.kata.overhead.memory_mib // sizing.GIB)


def overhead_cpu(config: CaasConfig) -> int:
    """Cores of a VM beside its containers, rounded up."""
    return -(-config.kata.overhead.cpu_millicores // 1000)


def _size(size: ContainerSize, disk_gib: int) -> Size:
    return Size(size.cpu, size.memory_gib, size.disk_gib or disk_gib)


def share(config: CaasConfig, tenant: Tenant) -> Share:
    """What the tenant may hold, with defaults filled in."""
    total = Size(
        tenant.cpu or tenant.gpus * CPU_PER_GPU,
        tenant.memory_gib or tenant.gpus * MEMORY_GIB_PER_GPU,
        tenant.disk_gib or tenant.gpus * DISK_GIB_PER_GPU,
    )
    largest = Size(
        max(total.cpu - overhead_cpu(config), 1),
        max(total.memory_gib - overhead_gib(config), 1),
        total.disk_gib,
    )
    default_disk = min(DISK_GIB_PER_CONTAINER, total.disk_gib)
    return Share(
        gpus=tenant.gpus,
        total=total,
        storage_gib=tenant.storage_gib,
        claims=len(tenant.nfs.volumes) if tenant.nfs else 0,
        default_container=_size(tenant.default_container, default_disk),
        max_container=(
            _size(tenant.max_container, total.disk_gib) if tenant.max_container else largest
        ),
    )


def fabric_manager_host(config: CaasConfig) -> str:
    """Where the fabric manager's API is, as seen from its machine."""
    return str(config.service_vm.bind_address)


def _tenant(config: CaasConfig, tenant: Tenant, offered: tuple[int, ...]) -> TenantPlan:
    its = share(config, tenant)
    nfs = tenant.nfs
    return TenantPlan(
        name=tenant.name,
        namespace=namespace(config, tenant),
        share=its,
        quota=its.quota(config.device_access.resource_name, tenant.extra_quota),
        sizes=tenant.sizes or tuple(size for size in offered if size <= tenant.gpus),
        egress=tenant.egress,
        images=tenant.images.allowed,
        registry_auth=tenant.images.registry_auth,
        nfs_cidrs=(
            tuple(str(server) for server in nfs.servers)
            if nfs and nfs.mounted_by is NfsMount.GUEST
            else ()
        ),
    )


def plan(config: CaasConfig) -> CaasPlan:
    """What the stack declares."""
    nodes = tuple(
        NodePlan(
            node.name,
            board(config, node),
            partitions(config, node),
            layout=layout(config, node),
            declared=config.partition_layout != BY_LEASE,
            maintenance=node.maintenance,
        )
        for node in config.nodes
    )
    offered = tuple(sorted({cut.size for node in nodes for cut in node.partitions}))
    return CaasPlan(
        preset=preset(config),
        nodes=nodes,
        tenants=tuple(_tenant(config, tenant, offered) for tenant in config.tenants),
        sizes=offered,
        fabric_manager_host=fabric_manager_host(config),
        infrastructure_cidrs=joined(closed_to_tenants(config)),
        storage_cidrs=tuple(sorted(str(cidr) for cidr in config.network.storage_cidrs)),
    )
