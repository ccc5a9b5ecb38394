"""Row 13: the machines have the memory, the address space and the software that their VMs need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import most_guests, overhead_gib, partitions, preset
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.domain.versions import (
    KERNEL_HUGE_FAULTS,
    QEMU_ALIGNED_BARS,
    older,
    parse_release,
)
from gpuclusters.fabric.table import LayoutError
from gpuclusters.kata.model import GIB, aperture_gib, bars_gib, guests_mib


def _memory_gib(config: CaasConfig, node: Node) -> int | None:
    return node.memory_gib if node.memory_gib is not None else preset(config).memory_gib


def _memory_path(position: int) -> Path:
    return ("nodes", position, "memory-gib")


def _sizes(config: CaasConfig, node: Node) -> tuple[int, ...]:
    """Partition sizes of the node; empty if its layout is wrong, which other rules say."""
    try:
        return tuple(partition.size for partition in partitions(config, node))
    except LayoutError:
        return ()


def _most_guests(config: CaasConfig, node: Node) -> tuple[int, ...]:
    """As `_sizes`, while the node carries as many VMs as it can."""
    try:
        return most_guests(config, node)
    except LayoutError:
        return ()


@rule(13, "caas.machine-memory", each=["nodes"])
def guests_fit_into_the_machine(config: CaasConfig) -> Iterable[Finding]:
    largest = max((tenant.default_container.memory_gib for tenant in config.tenants), default=0)
    if not largest:
        return
    for position, node in enumerate(config.nodes):
        memory = _memory_gib(config, node)
        cuts = _most_guests(config, node)
        if memory is None or not cuts:
            continue
        guests = guests_mib(cuts, largest * GIB, config.kata.overhead.memory_mib)
        needed = -(-(guests + config.service_vm.memory_mib) // GIB)
        if needed > memory:
            yield finding(
                _memory_path(position),
                f"is less than {len(cuts)} VMs of {largest} GiB with "
                f"{config.kata.overhead.memory_mib} MiB overhead each and the service VM need, "
                f"{needed} GiB",
                show(memory),
                "cut the board into fewer partitions, or lower the tenants' "
                "default-container.memory-gib",
            )


@rule(13, "caas.largest-container", each=["tenants"])
def largest_guest_fits_somewhere(config: CaasConfig) -> Iterable[Finding]:
    memories = [_memory_gib(config, node) for node in config.nodes]
    known = [memory for memory in memories if memory is not None]
    if not known or len(known) < len(memories):
        return
    room = max(known) - overhead_gib(config) - -(-config.service_vm.memory_mib // GIB)
    for position, tenant in enumerate(config.tenants):
        if tenant.max_container and tenant.max_container.memory_gib > room:
            yield finding(
                ("tenants", position, "max-container", "memory-gib"),
                f"fits into no machine: the largest has {max(known)} GiB, of which VMs' overhead "
                f"and the service VM leave {max(room, 0)}",
                show(tenant.max_container.memory_gib),
                f"write {max(room, 1)} or less",
            )


@rule(13, "caas.huge-pages-too-many", each=["nodes"])
def huge_pages_fit(config: CaasConfig) -> Iterable[Finding]:
    numa_nodes = preset(config).numa_nodes
    for position, node in enumerate(config.nodes):
        pages = node.hugepages_gib_per_numa_node
        if pages is None:
            continue
        yield from _huge_page_shape(
            ("nodes", position, "hugepages-gib-per-numa-node"), pages, numa_nodes
        )
        memory = _memory_gib(config, node)
        if memory is None:
            continue
        room = memory - -(-config.service_vm.memory_mib // GIB)
        if sum(pages) > room:
            yield finding(
                ("nodes", position, "hugepages-gib-per-numa-node"),
                f"reserves {sum(pages)} GiB, more than the {max(room, 0)} GiB that the service VM "
                f"leaves of the machine's {memory}",
                show(pages),
                "reserve less",
            )


def _huge_page_shape(path: Path, pages: tuple[int, ...], numa_nodes: int) -> Iterator[Finding]:
    if len(pages) != numa_nodes:
        yield finding(
            path,
            f"has {len(pages)} numbers for {numa_nodes} NUMA nodes",
            show(pages),
            f"write {numa_nodes} numbers, one for each",
        )
    elif len(set(pages)) > 1:
        yield finding(
            path,
            "differs between NUMA nodes, so that a VM's memory cannot be spread like its GPUs",
            show(pages),
            "write the same number for each",
        )


@rule(13, "caas.guest-address-space", each=["nodes"])
def guests_can_address_their_gpus(config: CaasConfig) -> Iterable[Finding]:
    bar = preset(config).gpu_bar_gib
    for position, node in enumerate(config.nodes):
        bits = node.physical_address_bits
        largest = max(_sizes(config, node), default=0)
        if bits is None or not largest:
            continue
        needed = bars_gib(largest, bar)
        if aperture_gib(bits) < needed:
            yield finding(
                ("nodes", position, "physical-address-bits"),
                f"give a window of {aperture_gib(bits)} GiB, while the BARs of {largest} GPUs take "
                f"{needed}",
                show(bits),
                "start VMs with host-phys-bits, or cut the board into smaller partitions",
            )


@rule(13, "caas.machine-address-space", each=["nodes"])
def machines_can_address_their_gpus(config: CaasConfig) -> Iterable[Finding]:
    needed = bars_gib(8, preset(config).gpu_bar_gib)
    for position, node in enumerate(config.nodes):
        if node.mmio_high_gib is not None and node.mmio_high_gib < needed:
            yield finding(
                ("nodes", position, "mmio-high-gib"),
                f"is less than the BARs of eight GPUs take, {needed} GiB",
                show(node.mmio_high_gib),
                'raise "MMIO High Size" in the BIOS, with "Above 4G Decoding" on',
            )


@rule(13, "caas.machine-version-not-pinned", each=["nodes"])
def machine_versions_are_versions(config: CaasConfig) -> Iterable[Finding]:
    for position, node in enumerate(config.nodes):
        for key, value in (("kernel", node.kernel), ("qemu", node.qemu)):
            if value is not None and parse_release(value) is None:
                yield finding(
                    ("nodes", position, key),
                    "is not a version",
                    show(value),
                    "write its numbers in quotes, for example 6.17.0 or 11.0.1",
                )


@rule(13, "caas.slow-gpu-mapping", each=["nodes"], level=Level.WARN)
def several_gpus_start_fast(config: CaasConfig) -> Iterable[Finding]:
    for position, node in enumerate(config.nodes):
        gpus = max(_sizes(config, node), default=0)
        if gpus < 2:
            continue
        for key, value, least in (
            ("kernel", node.kernel, KERNEL_HUGE_FAULTS),
            ("qemu", node.qemu, QEMU_ALIGNED_BARS),
        ):
            if value is not None and older(value, least):
                yield finding(
                    ("nodes", position, key),
                    f"maps the memory of {gpus} GPUs in small pages: seconds for each, "
                    "minutes before Linux 6.8",
                    show(value),
                    f"upgrade to {'.'.join(map(str, least))} or newer",
                )
