"""Row 1: every board is cut into partitions that its table has, each GPU in exactly one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.nodes import MIXED, Node
from gpuclusters.config.plan import cut_sizes, preset, table
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.fabric.table import TABLES, LayoutError, PartitionTable, plan_layout


def _layout(path: Path, known: PartitionTable, layout: tuple[int, ...]) -> Iterator[Finding]:
    try:
        plan_layout(known, layout)
    except LayoutError as error:
        sizes = ", ".join(str(size) for size in known.sizes)
        yield finding(
            path,
            f"cannot be cut: {error}",
            show(layout),
            f"write sizes out of {sizes} that add up to 8, for example [4, 2, 1, 1]",
        )


@rule(1, "caas.layout-impossible")
def cluster_layout_is_on_offer(config: CaasConfig) -> Iterable[Finding]:
    layout = config.partition_layout
    if not isinstance(layout, str):
        yield from _layout(("partition-layout",), table(config), layout)


@rule(1, "caas.node-layout-impossible", each=["nodes"])
def node_layouts_are_on_offer(config: CaasConfig) -> Iterable[Finding]:
    for position, node in enumerate(config.nodes):
        if node.partition_layout is not None:
            path: Path = ("nodes", position, "partition-layout")
            yield from _layout(path, table(config), node.partition_layout)


@rule(1, "caas.layout-stated-twice", each=["nodes"])
def layouts_are_stated_once(config: CaasConfig) -> Iterable[Finding]:
    mixed = config.partition_layout == MIXED
    for position, node in enumerate(config.nodes):
        path: Path = ("nodes", position, "partition-layout")
        own = node.partition_layout is not None or node.partitions is not None
        if mixed and not own:
            yield finding(
                path,
                "is missing while the cluster's partition-layout is mixed",
                NOTHING,
                "write the node's sizes, for example [4, 2, 1, 1]",
            )
        if not mixed and own:
            key = "partition-layout" if node.partition_layout is not None else "partitions"
            yield finding(
                ("nodes", position, key),
                "is stated although the cluster's partition-layout holds for every node",
                show(node.partition_layout or node.partitions or ()),
                "write partition-layout: mixed for the cluster, or remove it here",
            )
        if node.partition_layout is not None and node.partitions is not None:
            yield finding(
                ("nodes", position, "partitions"),
                "is stated beside partition-layout",
                show(node.partitions),
                "keep one of the two",
            )


@rule(1, "caas.partition-unknown", each=["nodes"])
def partition_numbers_are_in_the_table(config: CaasConfig) -> Iterable[Finding]:
    known = table(config)
    numbers = [partition.id for partition in known.partitions]
    for position, node in enumerate(config.nodes):
        for entry, number in enumerate(node.partitions or ()):
            if number in numbers:
                continue
            others = [
                board.value
                for board, other in TABLES.items()
                if board is not known.baseboard and number in [cut.id for cut in other.partitions]
            ]
            hint = f" (it is one of {', '.join(others)})" if others else ""
            yield finding(
                ("nodes", position, "partitions", entry),
                f"is not the number of a partition of {known.baseboard}{hint}",
                show(number),
                f"write numbers from {min(numbers)} to {max(numbers)}",
            )


@rule(1, "caas.table-already-known")
def own_tables_are_for_unknown_boards(config: CaasConfig) -> Iterable[Finding]:
    stated = config.own_table
    known = TABLES.get(preset(config).baseboard)
    if stated is None or known is None:
        return
    if {n: tuple(sorted(m)) for n, m in stated.items()} != {
        p.id: p.modules for p in known.partitions
    }:
        yield finding(
            ("partition-table",),
            f"is not the table of {known.baseboard}: a table of your own is what "
            "SHARED_PARTITION_DEFINITION_FILE gives the fabric manager, and this version does not install it",
            f"{len(stated)} partitions",
            "leave the key out",
        )


def _modules(known: PartitionTable, node: Node) -> Iterator[tuple[int, int]]:
    """Position in the node's list and module, for every number that the table has."""
    by_number = {partition.id: partition for partition in known.partitions}
    for entry, number in enumerate(node.partitions or ()):
        for module in by_number[number].modules if number in by_number else ():
            yield entry, module


@rule(1, "caas.partitions-overlap", each=["nodes"])
def partitions_do_not_overlap(config: CaasConfig) -> Iterable[Finding]:
    known = table(config)
    for position, node in enumerate(config.nodes):
        owner: dict[int, int] = {}
        clashes: dict[tuple[int, int], list[int]] = {}
        for entry, module in _modules(known, node):
            if module in owner:
                clashes.setdefault((owner[module], entry), []).append(module)
            else:
                owner[module] = entry
        for (first, entry), modules in clashes.items():
            chosen = node.partitions or ()
            yield finding(
                ("nodes", position, "partitions", entry),
                f"shares GPU modules {', '.join(map(str, modules))} with partition {chosen[first]}",
                show(chosen[entry]),
                "choose partitions that have no GPU in common",
            )


@rule(1, "caas.gpu-in-no-partition", each=["nodes"])
def partitions_leave_no_gpu_out(config: CaasConfig) -> Iterable[Finding]:
    known = table(config)
    numbers = {partition.id for partition in known.partitions}
    for position, node in enumerate(config.nodes):
        if node.partitions is None or not numbers.issuperset(node.partitions):
            continue
        covered = {module for _, module in _modules(known, node)}
        left = [module for module in range(1, max(known.sizes) + 1) if module not in covered]
        if left:
            yield finding(
                ("nodes", position, "partitions"),
                f"leaves GPU modules {', '.join(map(str, left))} in no partition",
                show(node.partitions),
                "add partitions that hold them",
            )


@rule(1, "caas.size-of-no-partition", each=["tenants"])
def tenant_sizes_are_partition_sizes(config: CaasConfig) -> Iterable[Finding]:
    known = table(config)
    for position, tenant in enumerate(config.tenants):
        for entry, size in enumerate(tenant.sizes or ()):
            if size not in known.sizes:
                yield finding(
                    ("tenants", position, "sizes", entry),
                    f"is not the size of a partition of {known.baseboard}",
                    show(size),
                    f"write sizes out of {', '.join(map(str, known.sizes))}",
                )


@rule(1, "caas.no-partition-for-tenant", each=["tenants"], level=Level.WARN)
def tenants_can_use_what_is_cut(config: CaasConfig) -> Iterable[Finding]:
    cut = cut_sizes(config)
    offered = ", ".join(map(str, cut))
    for position, tenant in enumerate(config.tenants):
        if cut and tenant.gpus < cut[0]:
            yield finding(
                ("tenants", position, "gpus"),
                f"is less than the smallest partition, of {cut[0]} GPUs: the tenant can run nothing",
                show(tenant.gpus),
                f"write {cut[0]} or more, or cut a board into smaller partitions",
            )
        elif cut and tenant.sizes and not set(tenant.sizes) & set(cut):
            yield finding(
                ("tenants", position, "sizes"),
                f"are sizes into which no board is cut; they are cut into {offered}",
                show(tenant.sizes),
                "change sizes or a layout",
            )
