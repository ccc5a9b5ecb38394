"""What a valid configuration means, with presets and defaults: what the stack declares. Pure, never fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from gpuclusters.boot.guest_profile import BootProfile, Guest
from gpuclusters.boot.model import MachinePreparation, RebootPolicy, host_files, kernel_arguments
from gpuclusters.cdi.model import VfioBackend
from gpuclusters.compat import gpu_products
from gpuclusters.compat.platforms import PRESETS, Preset
from gpuclusters.compat.versions import KATA_GUEST_DRIVERS, POD_RESOURCES_GET, older, parse_release
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import listed_addresses
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.nodes import BY_LEASE, PACKAGES, Node
from gpuclusters.config.tenants import ContainerSize, NfsMount, Tenant
from gpuclusters.core import naming
from gpuclusters.core.finding import Path
from gpuclusters.fabric.manager_config import FabricManagerSettings
from gpuclusters.fabric.table import (
    Board,
    LayoutError,
    Partition,
    PartitionTable,
    plan_layout,
    table_for,
)
from gpuclusters.host import drop_ins
from gpuclusters.kata import model as sizing
from gpuclusters.maintenance.decide import Drain
from gpuclusters.preflight.model import Expects, expects_of
from gpuclusters.service_vm.model import LAB_IMAGE
from gpuclusters.tenancy.isolation import Network, Range, joined, literal
from gpuclusters.tenancy.model import (
    CPU_PER_GPU,
    DISK_GIB_PER_CONTAINER,
    DISK_GIB_PER_GPU,
    MEMORY_GIB_PER_GPU,
    Share,
    Size,
    TenancySpec,
)
from gpuclusters.tenancy.on_demand import OnDemand
from gpuclusters.vfio.model import NVSWITCH_PCI_ID, board_functions

_MACHINE_MEMORY_GIB = 2048
"""Of a machine whose memory is neither stated nor in its platform's preset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One machine: where its GPUs are, how its board is cut, and what it must be."""

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
    preparation: MachinePreparation
    expects: Expects
    service_vm: Mapping[str, Any]
    """Inputs of its service VM beside the host and its PCI functions."""
    adopt: bool
    """Whether what is on it already is taken over."""


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """One tenant: what was written, and what follows from it."""

    stated: Tenant
    share: Share
    tenancy: TenancySpec

    @property
    def name(self) -> str:
        return self.stated.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CaasPlan:
    preset: Preset
    boot: BootProfile
    """Every timeout of its VMs."""
    kubelet_drop_in: str
    """Text of the drop-in of its kubelets."""
    nodes: tuple[NodePlan, ...]
    tenants: tuple[TenantPlan, ...]
    on_demand: OnDemand | None
    """What tenants get who have no tenancy; None: nothing."""
    sizes: tuple[int, ...]
    """Partition sizes that the cluster offers."""
    fabric_manager_host: str
    """Address of the fabric manager's API as seen from each machine."""
    network: Network
    """What is closed to tenants."""

    @property
    def capacity(self) -> Mapping[int, int]:
        """How many partitions of each size the cluster has.

        Without a declared cut they overlap: so many there can be while there is no other size.
        """
        all_sizes = [partition.size for node in self.nodes for partition in node.partitions]
        return {size: all_sizes.count(size) for size in self.sizes}


def preset(config: CaasConfig) -> Preset:
    return PRESETS[config.platform]


def gpu_product(config: CaasConfig) -> str | None:
    """The GPUs of the machines as the table of products names them."""
    products = gpu_products.table().products.items()
    return next((key for key, one in products if one.name == preset(config).gpu_model), None)


def table(config: CaasConfig) -> PartitionTable:
    """The partitions that the cluster's boards offer."""
    return table_for(preset(config).baseboard, config.own_table)


def guest_driver(config: CaasConfig) -> str | None:
    """The NVIDIA driver in the guests' image; None where nobody says."""
    return config.versions.guest_driver or KATA_GUEST_DRIVERS.get(config.versions.kata)


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


def _layout(config: CaasConfig, node: Node) -> tuple[int, ...] | str:
    """The sizes into which a node's board is cut where it states no numbers, or the word for them."""
    return config.partition_layout if node.partition_layout is None else node.partition_layout


def partitions(config: CaasConfig, node: Node) -> tuple[Partition, ...]:
    """The partitions of a node that may be leased; none of a layout that a rule refuses."""
    known, layout = table(config), _layout(config, node)
    try:
        if node.partitions is not None:
            return tuple(known.partition(number) for number in sorted(node.partitions))
        if layout == BY_LEASE:
            return known.partitions
        return () if isinstance(layout, str) else plan_layout(known, layout)
    except LayoutError:
        return ()


def most_guests(config: CaasConfig, node: Node) -> tuple[int, ...]:
    """Partition sizes of a node while it carries as many VMs as it can; they never overlap."""
    if config.partition_layout == BY_LEASE:
        known = table(config)
        return (min(known.sizes),) * (max(known.sizes) // min(known.sizes))
    return tuple(partition.size for partition in partitions(config, node))


def cut_sizes(config: CaasConfig) -> tuple[int, ...]:
    """Sizes of the partitions that the layouts give, smallest first."""
    return tuple(sorted({cut.size for node in config.nodes for cut in partitions(config, node)}))


def namespace(config: CaasConfig, tenant: Tenant) -> str:
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


def memory_gib(config: CaasConfig, node: Node) -> int | None:
    """Of a machine; None where nobody says."""
    return node.memory_gib or preset(config).memory_gib


def service_vm_gib(config: CaasConfig) -> int:
    """What the service VM takes of a machine's memory, in whole GiB."""
    return -(-config.service_vm.memory_mib // sizing.GIB)


def boot_profile(config: CaasConfig, **other: int | None) -> BootProfile:
    """Every timeout of the cluster: derived where none is stated; `other` is in place of what is."""
    stated = {
        "cdi_timeout": config.kata.cdi_timeout_seconds,
        "create_container_timeout": config.kata.create_container_timeout_seconds,
        "dial_timeout": config.kata.dial_timeout_seconds,
        "kubelet_request_timeout": config.kubernetes.kubelet.runtime_request_timeout_seconds,
    }
    return BootProfile.of(_largest_guest(config)).stated(**stated | other)


def _largest_guest(config: CaasConfig) -> Guest:
    """The VM that boots longest: the most GPUs of a board, the most memory of a tenant, the oldest kernel.

    Not the most GPUs of the present cut: another cut would then restart every kubelet and install Kata anew.
    """
    gpus = max(table(config).sizes)
    asked = [share(config, tenant).max_container.memory_gib for tenant in config.shares]
    machines = [memory_gib(config, node) or _MACHINE_MEMORY_GIB for node in config.nodes]
    kernels = [parse_release(node.kernel) for node in config.nodes if node.kernel is not None]
    return Guest(
        gpus=gpus,
        memory_gib=min(max(asked, default=gpus * MEMORY_GIB_PER_GPU), max(machines)),
        huge_pages=config.kata.huge_pages,
        # With `auto` a machine may turn out to have only the slower form.
        iommufd=config.device_access.vfio is VfioBackend.IOMMUFD,
        kernel=min((kernel for kernel in kernels if kernel is not None), default=None),
    )


def machine_addresses(config: CaasConfig) -> Iterator[tuple[Path, str]]:
    """By key: addresses and names of machines, servers, and of what leads to the API server."""
    yield from listed_addresses(config.hosts)
    cluster = config.kubernetes
    if not isinstance(cluster, Rke2Kubernetes):
        return
    for number, server in enumerate(cluster.servers):
        if server.address is not None:
            yield ("kubernetes", "servers", number, "address"), server.address
    if cluster.registration_address is not None:
        yield ("kubernetes", "registration-address"), cluster.registration_address


def controller_addresses(config: CaasConfig) -> Iterator[tuple[Path, str]]:
    """By key: addresses and names of management controllers."""
    for number, node in enumerate(config.nodes):
        if node.bmc is not None:
            yield ("nodes", number, "bmc", "url"), urlsplit(node.bmc.url).hostname or ""


def _closed_to_tenants(config: CaasConfig) -> Iterator[Range]:
    """All that is known to be no tenant's business; a tenant's own pods are reached past these ranges.

    Cilium applies ranges to what it does not manage: a pod's address has the pod's identity instead.
    """
    yield from config.network.node_cidrs
    yield from config.network.bmc_cidrs
    yield config.kubernetes.pod_cidr
    yield config.kubernetes.service_cidr
    yield config.service_vm.network.addresses
    for _, host in (*machine_addresses(config), *controller_addresses(config)):
        address = literal(host)
        if address is not None:
            yield ip_network(address)


def expects(config: CaasConfig, node: Node) -> Expects:
    """What the preflight compares a machine with: its own words where it has some, else its platform's."""
    return expects_of(
        preset(config),
        board(config, node),
        memory_gib=node.memory_gib,
        huge_pages_1g=node.hugepages_gib_per_numa_node or (),
        vfio=config.device_access.vfio,
        partitions=len(table(config).partitions),
    )


def _preparation(config: CaasConfig, node: Node) -> MachinePreparation:
    said, known, its = config.preparation, preset(config), board(config, node)
    functions = board_functions(
        gpus=its.gpus,
        gpu_pci_id=known.gpu_pci_id,
        switches=its.switches,
        switch_pci_id=known.switch_pci_id or NVSWITCH_PCI_ID,
        extra_functions=its.extra_functions,
        extra_pci_id=known.extra_pci_id,
    )
    pages = dict(enumerate(node.hugepages_gib_per_numa_node or ()))
    return MachinePreparation(
        kernel_arguments=kernel_arguments(
            cpu=said.cpu,
            huge_pages_1g_by_numa_node=pages,
            early_claim=[f.pci_id for f in functions] if said.early_claim else (),
            extra=said.extra_kernel_arguments,
        ),
        files=host_files(said),
        functions=functions,
        huge_pages_1g=pages,
        packages=dict.fromkeys(PACKAGES) | dict(said.package_versions),
        may_reboot=said.reboot is RebootPolicy.ALLOW,
        reboot_timeout_seconds=said.reboot_timeout_seconds,
    )


def _service_vm(config: CaasConfig, node: Node) -> dict[str, Any]:
    vm = config.service_vm
    found = vm.model_dump(mode="json")
    manager = {key: found.pop(key) for key in FabricManagerSettings.model_fields if key in found}
    manager |= {"mode": found.pop("fabric_mode"), "restart": found.pop("fabric_mode_restart")}
    if vm.partition_rail_policy is None:
        del manager["partition_rail_policy"]
    found["fabric_manager"] = {"version": config.versions.fabric_manager, **manager}
    found["image"] = vm.image.model_dump(exclude_none=True) if vm.image else dict(LAB_IMAGE)
    found["adopt"] = vm.adopt or node.name in config.adopt.machines
    if vm.packages is None:
        del found["packages"]
    return found


def _node(config: CaasConfig, node: Node) -> NodePlan:
    layout = _layout(config, node)
    sized = node.partitions is None and not isinstance(layout, str)
    return NodePlan(
        name=node.name,
        board=board(config, node),
        partitions=partitions(config, node),
        layout=tuple(map(int, layout)) if sized else None,
        declared=config.partition_layout != BY_LEASE,
        maintenance=node.maintenance,
        preparation=_preparation(config, node),
        expects=expects(config, node),
        service_vm=_service_vm(config, node),
        adopt=node.name in config.adopt.machines,
    )


def _tenant(config: CaasConfig, tenant: Tenant, offered: tuple[int, ...]) -> TenantPlan:
    its, nfs = share(config, tenant), tenant.nfs
    level = config.kubernetes.pod_security.value
    # As Pod Security Admission writes versions: `v1.34` of `1.34.2`.
    version = "v" + ".".join(config.kubernetes.version.removeprefix("v").split(".")[:2])
    # What the kubelet mounts needs no rule.
    mounts_itself = nfs is not None and nfs.mounted_by is NfsMount.GUEST
    spec: Mapping[str, Any] = {
        "tenant": tenant.name,
        "namespace": namespace(config, tenant),
        "gpus": tenant.gpus,
        "gpu_resource": config.device_access.resource_name,
        "sizes": tenant.sizes or tuple(size for size in offered if size <= tenant.gpus),
        "pod_security": {"enforce": level, "audit": level, "warn": level, "version": version},
        "quota": {"hard": its.quota(config.device_access.resource_name, tenant.extra_quota)},
        "limits": its.limits(huge_pages=config.kata.huge_pages),
        "egress": {
            **tenant.egress.model_dump(),
            "nfs_cidrs": tuple(map(str, nfs.servers)) if nfs and mounts_itself else (),
        },
        "runtime_classes": [config.kata.runtime_class],
        "images": tenant.images.allowed,
        "pull_secret": bool(tenant.images.registry_auth),
    }
    return TenantPlan(tenant, its, TenancySpec.model_validate(spec))


def _on_demand(config: CaasConfig, offered: tuple[int, ...]) -> OnDemand | None:
    stated = config.tenants_on_demand
    if stated is None:
        return None
    template = _tenant(config, stated.as_tenant(), offered).tenancy
    return OnDemand(most=stated.most, prefix=config.tenant_namespace_prefix, template=template)


def plan(config: CaasConfig) -> CaasPlan:
    boot = boot_profile(config)
    offered = cut_sizes(config)
    return CaasPlan(
        preset=preset(config),
        boot=boot,
        kubelet_drop_in=drop_ins.kubelet(
            runtime_request_timeout_seconds=boot.kubelet_request_timeout,
            pod_resources_get=older(config.kubernetes.version, POD_RESOURCES_GET),
        ),
        nodes=tuple(_node(config, node) for node in config.nodes),
        tenants=tuple(_tenant(config, tenant, offered) for tenant in config.tenants),
        on_demand=_on_demand(config, offered),
        sizes=offered,
        fabric_manager_host=str(config.service_vm.bind_address),
        network=Network(
            infrastructure_cidrs=joined(_closed_to_tenants(config)),
            storage_cidrs=tuple(sorted(map(str, config.network.storage_cidrs))),
            cluster_domain=config.kubernetes.cluster_domain,
        ),
    )
