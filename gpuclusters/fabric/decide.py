"""What a board and its machine say, compared with what is declared: modules, tables, links, marks. Pure.

Partitions are made of modules, VMs are given PCI addresses. A wrong map connects one tenant's GPUs and hands
over another's, so it is read from the GPUs and never derived from the order of the bus.
Source: NVIDIA/gpu-admin-tools, `--query-module-name` (prints `SXM_1` to `SXM_8`; H100 and newer SXM
GPUs); WP-12736-002 for modules not following the order of the bus.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from gpuclusters.core.finding import refused
from gpuclusters.fabric.model import FabricInputs, LeaseMarks, LiveTable, ModuleReading
from gpuclusters.fabric.table import PartitionTable, listed

TOOL = "nvidia_gpu_tools.py"


def require_map(host: str, configured: Mapping[int, str], reading: ModuleReading) -> None:
    """Check that every GPU that could be asked sits where the configuration says."""
    module_of = reading.modules
    address_of = {module: address for address, module in module_of.items()}
    wrong = [
        module
        for module, address in sorted(configured.items())
        if module_of.get(address, module) != module or address_of.get(module, address) != address
    ]
    if wrong:
        right = sorted({**configured, **address_of}.items())
        lines = "\n".join(f'    "{module}": "{address}"' for module, address in right)
        both = _side_by_side(configured, address_of, reading.held)
        said = {"gpus": listed(wrong), "both": both, "lines": lines}
        raise refused(host, "fabric.modules-differ", case="with-lines", **said)
    if reading.silent:
        by_address = {address: module for module, address in configured.items()}
        named = [f"GPU {by_address.get(a, '?')} ({a})" for a in reading.silent]
        words = f" ({' | '.join(reading.said)[:500]})" if reading.said else ""
        code, others, first = "fabric.module-silent", len(module_of), reading.silent[0]
        raise refused(host, code, gpus=named, others=others, words=words, first=first)


def _side_by_side(
    configured: Mapping[int, str], read: Mapping[int, str], held: Mapping[str, str]
) -> str:
    lines = ["  module  configured    read"]
    for module in sorted(configured.keys() | read.keys()):
        ours = configured.get(module, "-")
        theirs = read.get(module, "not read, in use" if ours in held else "not read")
        mark = "" if ours == theirs or theirs.startswith("not") else "  <--"
        lines.append(f"  {module:<6}  {ours:<12}  {theirs}{mark}")
    return "\n".join(lines) + "\n"


def table_differences(
    table: PartitionTable,
    live: LiveTable,
    unsupported: Mapping[int, Sequence[int]] | None = None,
) -> Iterator[str]:
    """Each difference between the planned table and the board's own, with both sides.

    A partition that the board leaves out because it cannot support it now is none, if it is the
    same one.
    """
    left_out = {i: tuple(sorted(m)) for i, m in (unsupported or {}).items()}
    planned = {p.id: p.modules for p in table.partitions}
    for partition_id in sorted(planned.keys() | live.keys()):
        ours = planned.get(partition_id)
        theirs = live[partition_id].modules if partition_id in live else None
        if ours != (theirs or left_out.get(partition_id)):
            yield (
                f"partition {partition_id} is {_gpus(ours)} in the table of {table.baseboard} "
                f"and {_gpus(theirs)} on the board"
            )


def _gpus(modules: Sequence[int] | None) -> str:
    return f"GPUs {listed(modules)}" if modules else "absent"


def active_ids(live: LiveTable) -> tuple[int, ...]:
    """The ids of the active partitions, in order."""
    return tuple(sorted(p.id for p in live.values() if p.active))


# `fmpm --get-nvlink-failed-devices` is not asked: on HGX H100 it is always empty, and after a
# restart it is not supported. The links in the list of partitions say more.


def without_links(live: LiveTable, wanted: Collection[int]) -> Iterator[str]:
    """Wanted partitions of several GPUs of which one has no NVLink at all: they could not talk."""
    for partition_id in sorted(set(wanted) & live.keys()):
        partition = live[partition_id]
        cut_off = [m for m, (up, most) in sorted(partition.links.items()) if most > up == 0]
        if len(partition.modules) > 1 and cut_off:
            yield f"partition {partition_id}: GPUs {listed(cut_off)} have no NVLink"


def failed_modules(table: PartitionTable, unsupported: Collection[int]) -> tuple[int, ...]:
    """Modules that explain why partitions are left out: those whose own partition is."""
    singles = {p.id: p.modules[0] for p in table.partitions if p.size == 1}
    return tuple(sorted(singles[i] for i in unsupported if i in singles))


def health_warnings(
    table: PartitionTable, live: LiveTable, unsupported: Collection[int] = ()
) -> Iterator[str]:
    """What a board cannot do at the moment: partitions it left out, GPUs with fewer NVLinks."""
    if unsupported:
        failed = failed_modules(table, unsupported)
        why = f" because GPUs {listed(failed)} failed" if failed else ""
        yield (
            f"partitions {listed(sorted(unsupported))} are not supported at the moment"
            f"{why}; no VM can have them"
        )
    # Partitions of one GPU have no links, whatever trained.
    links = dict(sorted(link for partition in live.values() for link in partition.links.items()))
    for module, (up, most) in links.items():
        if up < most:
            yield f"GPU {module} has {up} of {most} NVLinks: its partitions are slower"


def left_to_leases(spec: FabricInputs, marks: LeaseMarks, ids: Collection[int]) -> tuple[int, ...]:
    """Those of the partitions with a GPU that has a mark: leases took them down and bring them up again."""
    modules_of = {i: spec.partition_table.partition(i).modules for i in sorted(ids)}
    return tuple(
        i for i, m in modules_of.items() if not marks.withheld.isdisjoint(spec.addresses(m))
    )


def quarantine_warnings(
    spec: FabricInputs, marks: LeaseMarks, left: Collection[int]
) -> Iterator[str]:
    """For each GPU in quarantine, the partitions that stay down because of it.

    Nothing is said about GPUs that are just being recycled: that passes, and would show as a change.
    """
    table = spec.partition_table
    for module, address in sorted(spec.gpus.items()):
        ids = [i for i in sorted(left) if int(module) in table.partition(i).modules]
        if address in marks.quarantined and ids:
            yield (
                f"GPU {module} ({address}) is in quarantine: partitions {listed(ids)} stay "
                "inactive until its lease is free again (`kubectl get gpuleases` says why)"
            )
