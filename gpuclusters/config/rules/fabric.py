"""Rules of caas: how boards are cut, and the VM with the NVSwitches and the fabric manager."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.compat.platforms import SwitchAccess
from gpuclusters.compat.rke2_matrix import branch_of
from gpuclusters.compat.versions import KATA_GUEST_DRIVERS
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.nodes import MIXED, GuestImage, Node, ServiceVm, Versions
from gpuclusters.config.plan import (
    board,
    cut_sizes,
    guest_driver,
    preset,
    table,
)
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.config.tenants import Tenant
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import FABRIC_MANAGER, fabric_manager
from gpuclusters.fabric.answers import FABRIC_MANAGER_PORT
from gpuclusters.fabric.table import (
    TABLES,
    Board,
    LayoutError,
    PartitionTable,
    plan_layout,
    repeated,
)
from gpuclusters.tenancy.isolation import overlapping

_SSH_PORT = 22
_UBUNTUS = "ubuntu"
"""Is in the version of every package that Ubuntu builds; those of NVIDIA end in -1."""


def _layout(known: PartitionTable, layout: tuple[int, ...]) -> Iterator[Wrong]:
    try:
        plan_layout(known, layout)
    except LayoutError as error:
        yield Wrong("partition-layout", error=error, sizes=known.sizes)


@rule("caas.layout-impossible")
def cluster_layout_is_on_offer(config: CaasConfig) -> Wrongs:
    if not isinstance(config.partition_layout, str):
        yield from _layout(table(config), config.partition_layout)


@rule("caas.node-layout-impossible", "nodes")
def node_layouts_are_on_offer(config: CaasConfig, node: Node) -> Wrongs:
    if node.partition_layout is not None:
        yield from _layout(table(config), node.partition_layout)


@rule("caas.layout-stated-twice", "nodes")
def layouts_are_stated_once(config: CaasConfig, node: Node) -> Wrongs:
    mixed = config.partition_layout == MIXED
    stated = {"partition-layout": node.partition_layout, "partitions": node.partitions}
    own = [key for key, value in stated.items() if value is not None]
    if mixed and not own:
        yield Wrong("partition-layout", "missing")
    if own and not mixed:
        yield Wrong(own[0], "of-cluster")
    if len(own) > 1:
        yield Wrong("partitions", "twice")


@rule("caas.partition-unknown", "nodes")
def partition_numbers_are_in_the_table(config: CaasConfig, node: Node) -> Wrongs:
    known = table(config)
    numbers = [partition.id for partition in known.partitions]
    for entry, number in enumerate(node.partitions or ()):
        if number in numbers:
            continue
        others = [
            board.value
            for board, other in TABLES.items()
            if board is not known.baseboard and number in [cut.id for cut in other.partitions]
        ]
        path, case = ("partitions", entry), "of-other" if others else "none"
        least, most = min(numbers), max(numbers)
        yield Wrong(path, case, known=known, others=others, least=least, most=most)


@rule("caas.table-already-known")
def own_tables_are_for_unknown_boards(config: CaasConfig) -> Wrongs:
    stated = config.own_table
    known = TABLES.get(preset(config).baseboard)
    if stated is None or known is None:
        return
    if {n: tuple(sorted(m)) for n, m in stated.items()} != {
        p.id: p.modules for p in known.partitions
    }:
        yield Wrong("partition-table", got=f"{len(stated)} partitions", baseboard=known.baseboard)


def _modules(known: PartitionTable, node: Node) -> Iterator[tuple[int, int]]:
    """Position in the node's list and module, for every number that the table has."""
    by_number = {partition.id: partition for partition in known.partitions}
    for entry, number in enumerate(node.partitions or ()):
        for module in by_number[number].modules if number in by_number else ():
            yield entry, module


@rule("caas.partitions-overlap", "nodes")
def partitions_do_not_overlap(config: CaasConfig, node: Node) -> Wrongs:
    owner: dict[int, int] = {}
    clashes: dict[tuple[int, int], list[int]] = {}
    for entry, module in _modules(table(config), node):
        first = owner.setdefault(module, entry)
        if first != entry:
            clashes.setdefault((first, entry), []).append(module)
    for (first, entry), modules in clashes.items():
        other = (node.partitions or ())[first]
        yield Wrong(("partitions", entry), modules=modules, other=other)


@rule("caas.gpu-in-no-partition", "nodes")
def partitions_leave_no_gpu_out(config: CaasConfig, node: Node) -> Wrongs:
    known = table(config)
    numbers = {partition.id for partition in known.partitions}
    if node.partitions is None or not numbers.issuperset(node.partitions):
        return
    covered = {module for _, module in _modules(known, node)}
    left = [module for module in range(1, max(known.sizes) + 1) if module not in covered]
    if left:
        yield Wrong("partitions", left=left)


@rule("caas.size-of-no-partition", "tenants")
def tenant_sizes_are_partition_sizes(config: CaasConfig, tenant: Tenant) -> Wrongs:
    known = table(config)
    for entry, size in enumerate(tenant.sizes or ()):
        if size not in known.sizes:
            yield Wrong(("sizes", entry), baseboard=known.baseboard, sizes=known.sizes)


@rule("caas.no-partition-for-tenant", "tenants", level=Level.WARN)
def tenants_can_use_what_is_cut(config: CaasConfig, tenant: Tenant) -> Wrongs:
    cut = cut_sizes(config)
    if cut and tenant.gpus < cut[0]:
        yield Wrong("gpus", "gpus", smallest=cut[0])
    elif cut and tenant.sizes and not set(tenant.sizes) & set(cut):
        yield Wrong("sizes", "sizes", cut=cut)


@rule("caas.fabric-manager-version", "versions")
def fabric_manager_is_of_the_guest_drivers_version(
    config: CaasConfig, versions: Versions
) -> Wrongs:
    driver = guest_driver(config)
    if driver is not None and versions.fabric_manager != driver:
        yield Wrong("fabric-manager", driver=driver)


@rule("caas.guest-driver-version", "versions")
def guest_driver_is_the_one_in_the_image(config: CaasConfig, versions: Versions) -> Wrongs:
    custom = config.kata.guest_image is GuestImage.CUSTOM
    known = None if custom else KATA_GUEST_DRIVERS.get(versions.kata)
    if known is None:
        if versions.guest_driver is None:
            why = "your own guest image" if custom else f"Kata {versions.kata}"
            yield Wrong("guest-driver", "missing", why=why)
    elif versions.guest_driver not in (None, known):
        yield Wrong("guest-driver", "other", kata=versions.kata, known=known)


@rule("caas.service-vm-packages", "service_vm")
def packages_of_the_service_vm_are_pinned(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.packages is None:
        return
    path: Path = ("packages", "packages")
    version = config.versions.fabric_manager
    stated = vm.packages.packages
    managers = [name for name in stated if name.startswith(FABRIC_MANAGER)]
    branch = branch_of(version)
    of_nvidia = fabric_manager(branch, of_ubuntu=False)
    if not managers:
        yield Wrong(path, "missing", got=show(sorted(stated)), of_nvidia=of_nvidia, version=version)
    for name, its in stated.items():
        if not its[0].isdigit() or "*" in its:
            yield Wrong((*path, name), "inexact")
        elif name in managers and its.partition("-")[0] != version:
            yield Wrong((*path, name), "other-version", version=version)
        elif name == fabric_manager(branch, of_ubuntu=True) != of_nvidia and _UBUNTUS not in its:
            yield Wrong((*path, name), "virtual", of_nvidia=of_nvidia, its=its)


@rule("caas.fabric-state-lost", "service_vm")
def state_survives_a_restart(_config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.state_file is None and vm.fabric_mode_restart:
        yield Wrong("state-file")


@rule("caas.fabric-manager-exposed", "service_vm")
def fabric_manager_listens_to_its_host_alone(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    address = vm.bind_address
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    odd = address.is_multicast or address.is_link_local or address.is_reserved
    for case, found in (
        ("everywhere", address.is_unspecified),
        ("guest-alone", address.is_loopback),
        ("no-address", odd and not address.is_unspecified),
        ("pods", address in pods),
        ("services", address in services),
    ):
        if found:
            yield Wrong("bind-address", case, pods=pods, services=services)


@rule("caas.service-vm-port", "service_vm")
def ports_do_not_clash(_config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.port != FABRIC_MANAGER_PORT:
        yield Wrong("port", "fixed", port=FABRIC_MANAGER_PORT)
    for port, whose in ((vm.port, "the API"), (_SSH_PORT, "the service VM's SSH server")):
        if vm.internal_port == port:
            yield Wrong("internal-port", "taken", whose=whose)


@rule("caas.service-vm-address", "service_vm")
def the_service_vm_is_on_its_own_network(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    network, address = config.service_vm.network.addresses, vm.bind_address
    if address == vm.network.host_address:
        yield Wrong("bind-address", "machine", network=network)
    elif address in (network.network_address, network.broadcast_address):
        yield Wrong("bind-address", "whole-network", network=network)
    elif address not in network and not (
        address.is_unspecified or address.is_loopback or address.is_multicast
    ):
        yield Wrong("bind-address", "outside", network=network)


@rule("caas.service-vm-network-overlap", "service_vm")
def the_network_of_the_service_vm_is_nobody_elses(config: CaasConfig, _vm: ServiceVm) -> Wrongs:
    network = config.service_vm.network.addresses
    for key, ranges in (
        ("kubernetes.pod-cidr", [config.kubernetes.pod_cidr]),
        ("kubernetes.service-cidr", [config.kubernetes.service_cidr]),
        ("network.node-cidrs", config.network.node_cidrs),
        ("network.bmc-cidrs", config.network.bmc_cidrs),
        ("network.storage-cidrs", config.network.storage_cidrs),
    ):
        for other in overlapping(network, ranges):
            yield Wrong("network.host-address", network=network, key=key, other=other)


@rule("caas.service-vm-image", "service_vm")
def the_service_vm_has_an_image(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.image is None and isinstance(config.hosts, ExistingHosts):
        yield Wrong("image", "missing")
    elif vm.image and (vm.image.path is None) == (vm.image.url is None):
        yield Wrong("image", "path-or-url", got="neither" if vm.image.path is None else "both")


@rule("caas.gpu-address-missing", "nodes")
def all_gpus_have_addresses(config: CaasConfig, node: Node) -> Wrongs:
    known = board(config, node).gpus
    missing = [module for module in range(1, 9) if module not in known]
    if missing and node.gpus is None:
        yield Wrong("gpus", "all", platform=config.platform)
    elif missing:
        got = f"modules {', '.join(map(str, sorted(known)))}" if known else "an empty mapping"
        yield Wrong("gpus", "some", got=got, missing=missing)


@rule("caas.switches-incomplete", "nodes")
def the_service_vm_has_all_switches(config: CaasConfig, node: Node) -> Wrongs:
    known, its = preset(config), board(config, node)
    count = known.fabric_functions
    if known.switch_access is SwitchAccess.CONNECTX_BRIDGE:
        yield from _bridges(its, count, config.platform)
    elif len(its.switches) != count:
        yield Wrong("switches", "switches", count=count, baseboard=known.baseboard)


def _bridges(its: Board, count: int, platform: str) -> Iterator[Wrong]:
    if its.switches:
        yield Wrong("switches", "none", platform=platform)
    if len(its.extra_functions) != count:
        yield Wrong("extra-functions", "bridges", count=count)


@rule("caas.iommu-group-incomplete", "nodes")
def the_service_vm_has_the_whole_group(config: CaasConfig, node: Node) -> Wrongs:
    known = preset(config)
    if len(board(config, node).extra_functions) < len(known.extra_functions):
        yield Wrong("extra-functions", id=known.extra_pci_id, usual=known.extra_functions)


@rule("caas.pci-function-twice", "nodes")
def no_function_has_two_owners(config: CaasConfig, node: Node) -> Wrongs:
    its = board(config, node)
    gpus: dict[str, int] = {}
    for module, address in sorted(its.gpus.items()):
        if gpus.setdefault(address, module) != module:
            yield Wrong(("gpus", str(module)), "module", got=show(address), module=gpus[address])
    for key, addresses in (("switches", its.switches), ("extra-functions", its.extra_functions)):
        for address in repeated(addresses):
            yield Wrong(key, "in-list", got=show(address))
        for address in dict.fromkeys(addresses):
            if address in gpus:
                yield Wrong(key, "gpu", got=show(address), module=gpus[address])
    for address in dict.fromkeys(its.switches):
        if address in its.extra_functions:
            yield Wrong("extra-functions", "switch", got=show(address))
