"""Rules of caas: how boards are cut, and the VM with the NVSwitches and the fabric manager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def _words(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _layout(known: PartitionTable, layout: tuple[int, ...]) -> Iterator[Wrong]:
    try:
        plan_layout(known, layout)
    except LayoutError as error:
        remedy = f"write sizes out of {_words(known.sizes)} that add up to 8, like [4, 2, 1, 1]"
        yield Wrong("partition-layout", f"cannot be cut: {error}", remedy)


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
        wrong = "is missing while the cluster's partition-layout is mixed"
        yield Wrong("partition-layout", wrong, "write the node's sizes, for example [4, 2, 1, 1]")
    if own and not mixed:
        wrong = "is stated although the cluster's partition-layout holds for every node"
        remedy = "write partition-layout: mixed for the cluster, or remove it here"
        yield Wrong(own[0], wrong, remedy)
    if len(own) > 1:
        yield Wrong("partitions", "is stated beside partition-layout", "keep one of the two")


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
        hint = f" (it is one of {_words(others)})" if others else ""
        wrong = f"is not the number of a partition of {known.baseboard}{hint}"
        remedy = f"write numbers from {min(numbers)} to {max(numbers)}"
        yield Wrong(("partitions", entry), wrong, remedy)


@rule("caas.table-already-known")
def own_tables_are_for_unknown_boards(config: CaasConfig) -> Wrongs:
    stated = config.own_table
    known = TABLES.get(preset(config).baseboard)
    if stated is None or known is None:
        return
    if {n: tuple(sorted(m)) for n, m in stated.items()} != {
        p.id: p.modules for p in known.partitions
    }:
        wrong = f"is not the table of {known.baseboard}, and this version installs no other"
        yield Wrong("partition-table", wrong, got=f"{len(stated)} partitions")


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
        wrong = f"shares GPU modules {_words(modules)} with partition {other}"
        yield Wrong(("partitions", entry), wrong)


@rule("caas.gpu-in-no-partition", "nodes")
def partitions_leave_no_gpu_out(config: CaasConfig, node: Node) -> Wrongs:
    known = table(config)
    numbers = {partition.id for partition in known.partitions}
    if node.partitions is None or not numbers.issuperset(node.partitions):
        return
    covered = {module for _, module in _modules(known, node)}
    left = [module for module in range(1, max(known.sizes) + 1) if module not in covered]
    if left:
        yield Wrong("partitions", f"leaves GPU modules {_words(left)} in no partition")


@rule("caas.size-of-no-partition", "tenants")
def tenant_sizes_are_partition_sizes(config: CaasConfig, tenant: Tenant) -> Wrongs:
    known = table(config)
    for entry, size in enumerate(tenant.sizes or ()):
        if size not in known.sizes:
            wrong = f"is not the size of a partition of {known.baseboard}"
            yield Wrong(("sizes", entry), wrong, f"write sizes out of {_words(known.sizes)}")


@rule("caas.no-partition-for-tenant", "tenants", level=Level.WARN)
def tenants_can_use_what_is_cut(config: CaasConfig, tenant: Tenant) -> Wrongs:
    cut = cut_sizes(config)
    if cut and tenant.gpus < cut[0]:
        wrong = f"is less than the smallest partition, of {cut[0]} GPUs: the tenant can run nothing"
        remedy = f"write {cut[0]} or more, or cut a board into smaller partitions"
        yield Wrong("gpus", wrong, remedy)
    elif cut and tenant.sizes and not set(tenant.sizes) & set(cut):
        wrong = f"are sizes into which no board is cut; they are cut into {_words(cut)}"
        yield Wrong("sizes", wrong, "change sizes or a layout")


@rule("caas.fabric-manager-version", "versions")
def fabric_manager_is_of_the_guest_drivers_version(
    config: CaasConfig, versions: Versions
) -> Wrongs:
    driver = guest_driver(config)
    if driver is not None and versions.fabric_manager != driver:
        wrong = f"differs from the guest's GPU driver, which is {driver}"
        remedy = f"write {driver}, and install exactly that one in the service VM"
        yield Wrong("fabric-manager", wrong, remedy)


@rule("caas.guest-driver-version", "versions")
def guest_driver_is_the_one_in_the_image(config: CaasConfig, versions: Versions) -> Wrongs:
    custom = config.kata.guest_image is GuestImage.CUSTOM
    known = None if custom else KATA_GUEST_DRIVERS.get(versions.kata)
    if known is None:
        if versions.guest_driver is None:
            why = "your own guest image" if custom else f"Kata {versions.kata}"
            wrong = f"is missing, and which driver {why} holds is not known"
            remedy = "write the version of the NVIDIA driver in the guest image"
            yield Wrong("guest-driver", wrong, remedy)
    elif versions.guest_driver not in (None, known):
        wrong = f"is not in the guest image of Kata {versions.kata}, which has {known}"
        remedy = f"write {known}, or set kata.guest-image: custom and build an image"
        yield Wrong("guest-driver", wrong, remedy)


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
        remedy = f'write its exact version: {of_nvidia}: "{version}-1" from NVIDIA\'s repository'
        yield Wrong(path, f"has no package {FABRIC_MANAGER}", remedy, show(sorted(stated)))
    for name, its in stated.items():
        if not its[0].isdigit() or "*" in its:
            wrong = "is not an exact version"
            yield Wrong((*path, name), wrong, "write the version as `apt-cache madison` prints it")
        elif name in managers and its.partition("-")[0] != version:
            wrong = f"is not versions.fabric-manager ({version})"
            yield Wrong((*path, name), wrong, f"write {version}-1, or the other version there")
        elif name == fabric_manager(branch, of_ubuntu=True) != of_nvidia and _UBUNTUS not in its:
            wrong = "is virtual in NVIDIA's repository from branch 590 on, and does not install at a version"
            yield Wrong((*path, name), wrong, f'write {of_nvidia}: "{its}"')


@rule("caas.fabric-state-lost", "service_vm")
def state_survives_a_restart(_config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.state_file is None and vm.fabric_mode_restart:
        yield Wrong("state-file", "is missing while fabric-mode-restart is true")


@rule("caas.fabric-manager-exposed", "service_vm")
def fabric_manager_listens_to_its_host_alone(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    address = vm.bind_address
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    odd = address.is_multicast or address.is_link_local or address.is_reserved
    for wrong, found in (
        ("listens on every network, tenants' among them", address.is_unspecified),
        ("can be reached from inside the service VM only", address.is_loopback),
        ("is not an address that a VM listens on", odd and not address.is_unspecified),
        (f"is in kubernetes.pod-cidr ({pods}), where tenants are", address in pods),
        (f"is in kubernetes.service-cidr ({services}), where tenants are", address in services),
    ):
        if found:
            yield Wrong("bind-address", wrong)


@rule("caas.service-vm-port", "service_vm")
def ports_do_not_clash(_config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.port != FABRIC_MANAGER_PORT:
        wrong = "is a port that fmpm, which has no option for it, never connects to"
        yield Wrong("port", wrong, f"write {FABRIC_MANAGER_PORT}, or leave it out")
    for port, whose in ((vm.port, "the API"), (_SSH_PORT, "the service VM's SSH server")):
        if vm.internal_port == port:
            wrong = f"is also the port of {whose}"
            yield Wrong("internal-port", wrong, "write another, or leave it out for 16000")


@rule("caas.service-vm-address", "service_vm")
def the_service_vm_is_on_its_own_network(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    network, address = config.service_vm.network.addresses, vm.bind_address
    if address == vm.network.host_address:
        wrong = "is the machine's own address on that network"
        yield Wrong("bind-address", wrong, f"write another address of {network}")
    elif address in (network.network_address, network.broadcast_address):
        wrong = f"names the whole of {network}, not one machine on it"
        yield Wrong("bind-address", wrong, "write an address between the first and the last")
    elif address not in network and not (
        address.is_unspecified or address.is_loopback or address.is_multicast
    ):
        wrong = f"is not in service-vm.network ({network}), where its machine is"
        remedy = "write an address of that range, or set network.host-address to the machine's"
        yield Wrong("bind-address", wrong, remedy)


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
            yield Wrong("network.host-address", f"makes {network}, which overlaps {key} ({other})")


@rule("caas.service-vm-image", "service_vm")
def the_service_vm_has_an_image(config: CaasConfig, vm: ServiceVm) -> Wrongs:
    if vm.image is None and isinstance(config.hosts, ExistingHosts):
        remedy = "write {path: FILE, sha256: CHECKSUM}, or url: for path (docs/service-vm.md)"
        yield Wrong("image", "is missing: nothing says what the service VM boots", remedy)
    elif vm.image and (vm.image.path is None) == (vm.image.url is None):
        wrong = "needs either path or url, and only one of them"
        remedy = "write where the image comes from once"
        yield Wrong("image", wrong, remedy, "neither" if vm.image.path is None else "both")


@rule("caas.gpu-address-missing", "nodes")
def all_gpus_have_addresses(config: CaasConfig, node: Node) -> Wrongs:
    known = board(config, node).gpus
    missing = [module for module in range(1, 9) if module not in known]
    if missing and node.gpus is None:
        wrong = f"is missing, and the preset of {config.platform} knows no PCI addresses"
        yield Wrong("gpus", wrong, 'write the address of each module: {"1": "0000:1b:00.0", …}')
    elif missing:
        remedy = "write all eight, as `nvidia_gpu_tools.py --query-module-name` reports them"
        got = f"modules {_words(sorted(known))}" if known else "an empty mapping"
        yield Wrong("gpus", f"has no address for modules {_words(missing)}", remedy, got)


@rule("caas.switches-incomplete", "nodes")
def the_service_vm_has_all_switches(config: CaasConfig, node: Node) -> Wrongs:
    known, its = preset(config), board(config, node)
    count = known.fabric_functions
    if known.switch_access is SwitchAccess.CONNECTX_BRIDGE:
        yield from _bridges(its, count, config.platform)
    elif len(its.switches) != count:
        remedy = f"write the addresses of all {count} (10de:22a3); with less it does not start"
        yield Wrong("switches", f"are not the {count} NVSwitches of {known.baseboard}", remedy)


def _bridges(its: Board, count: int, platform: str) -> Iterator[Wrong]:
    if its.switches:
        wrong = f"cannot be passed through: on {platform} the NVSwitches have no PCI function"
        remedy = "remove it, and write the ConnectX-7 functions that manage them as extra-functions"
        yield Wrong("switches", wrong, remedy)
    if len(its.extra_functions) != count:
        wrong = f"are not the {count} ConnectX-7 functions that manage the NVSwitches"
        remedy = f"write the PCI addresses of the {count} functions whose VPD says SW_MNG"
        yield Wrong("extra-functions", wrong, remedy)


@rule("caas.iommu-group-incomplete", "nodes")
def the_service_vm_has_the_whole_group(config: CaasConfig, node: Node) -> Wrongs:
    known = preset(config)
    if len(board(config, node).extra_functions) < len(known.extra_functions):
        wrong = f"lacks the function {known.extra_pci_id} that shares the switches' IOMMU group"
        remedy = f"write its address, usually {_words(known.extra_functions)}, or leave the key out"
        yield Wrong("extra-functions", wrong, remedy)


@rule("caas.pci-function-twice", "nodes")
def no_function_has_two_owners(config: CaasConfig, node: Node) -> Wrongs:
    its = board(config, node)
    gpus: dict[str, int] = {}
    for module, address in sorted(its.gpus.items()):
        if gpus.setdefault(address, module) != module:
            wrong = f"is also the address of module {gpus[address]}"
            remedy = "write the address of this module's GPU"
            yield Wrong(("gpus", str(module)), wrong, remedy, show(address))
    for key, addresses in (("switches", its.switches), ("extra-functions", its.extra_functions)):
        for address in repeated(addresses):
            yield Wrong(key, "lists a function twice", "list it once", show(address))
        for address in dict.fromkeys(addresses):
            if address in gpus:
                wrong = f"holds the address of GPU module {gpus[address]}, which a tenant gets"
                yield Wrong(key, wrong, "write the address of the switch or bridge", show(address))
    for address in dict.fromkeys(its.switches):
        if address in its.extra_functions:
            wrong = "holds a function that is also under switches"
            yield Wrong("extra-functions", wrong, "list it once", show(address))
