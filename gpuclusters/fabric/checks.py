"""What has to hold before partitions of a board are changed; every refusal here has changed nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuclusters.core.finding import refused
from gpuclusters.domain.fabric import LayoutError, plan_change, plan_layout
from gpuclusters.domain.fabric_state import FabricInputs, table_differences
from gpuclusters.domain.module_map import MapSource, require_map, unread
from gpuclusters.fabric import health as fabric_health
from gpuclusters.fabric.backoff import (
    Fabric,
    LiveTable,
    active_ids,
    held_gpus,
    listed,
    users_of,
)
from gpuclusters.fabric.lease_markers import left_to_leases, look

Unsupported = Mapping[int, tuple[int, ...]]
"""Modules by partition, of those that a board leaves out at the moment."""


def require_modules(spec: FabricInputs, fabric: Fabric) -> None:
    """Check that every GPU sits in the module that the configuration says.

    Raises:
        Refused: with both maps.
    """
    if fabric.modules is None or not spec.gpus or spec.module_map is not MapSource.READ:
        return
    configured = spec.configured_map
    reading = fabric.modules.read(sorted(configured.values()))
    require_map(fabric.modules.place, configured, reading)
    if in_use := unread(configured, reading):
        fabric.reporter.note(
            f"{fabric.manager.place}: GPUs {listed(in_use)} are in use, so that they could not be "
            "asked in which module they sit; taken as configured"
        )


def require_table(spec: FabricInputs, fabric: Fabric, live: LiveTable) -> Unsupported:
    """Check that the board's table is the one the plan was made with; answers what it leaves out.

    Raises:
        Refused: with each difference, both sides.
    """
    table = spec.partition_table
    if not list(table_differences(table, live)):
        return {}
    unsupported = fabric.manager.unsupported()
    differences = list(table_differences(table, live, unsupported))
    if differences:
        raise refused(
            fabric.manager.place,
            "fabric.table",
            f"the fabric manager's partition table is not that of {spec.baseboard}: "
            + "; ".join(differences),
            "check the baseboard in the configuration, and for missing partitions "
            "`fmpm --list-unsupported-partitions` (a GPU that failed takes its partitions along)",
        )
    return {i: tuple(m) for i, m in unsupported.items() if i not in live}


def wanted_partitions(spec: FabricInputs, fabric: Fabric, live: LiveTable) -> tuple[int, ...]:
    """What has to be active; of a layout the cut that needs fewest changes and keeps what is used.

    Raises:
        Refused: no cut into these sizes keeps what is used.
    """
    if spec.layout is None:
        return spec.wanted
    active = active_ids(live)
    if not active:
        return spec.wanted
    in_use = used_partitions(spec, fabric, live, active) if _differs(spec, live) else ()
    try:
        chosen = plan_layout(spec.partition_table, spec.layout, active=active, in_use=in_use)
    except LayoutError as error:
        raise refused(
            fabric.manager.place,
            "fabric.no-room",
            str(error),
            "stop these VMs first, or choose a layout that has room",
        ) from error
    return tuple(p.id for p in chosen)


def used_partitions(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, ids: Collection[int]
) -> tuple[int, ...]:
    """Which of these partitions have a GPU that a process holds."""
    used = users_of(spec, fabric, {m for i in ids for m in live[i].modules})
    return tuple(i for i in ids if not used.keys().isdisjoint(live[i].modules))


def _differs(spec: FabricInputs, live: LiveTable) -> bool:
    sizes = sorted(len(live[i].modules) for i in active_ids(live))
    return sizes != sorted(spec.layout or ())


def require_healthy(
    spec: FabricInputs,
    fabric: Fabric,
    live: LiveTable,
    wanted: Collection[int],
    unsupported: Unsupported,
) -> None:
    """Check that the board can do what is wanted at the moment.

    Raises:
        Refused: a wanted partition is not supported, or one that has to come up has a GPU
            without any NVLink.
    """
    missing = sorted(set(wanted) & set(unsupported))
    if missing:
        failed = fabric_health.failed_modules(spec.partition_table, unsupported)
        named = [f"{m} ({spec.gpus.get(str(m), 'address not given')})" for m in failed]
        raise refused(
            fabric.manager.place,
            "fabric.unsupported",
            f"partitions {listed(missing)} are wanted, but the fabric manager does not support them "
            f"at the moment (unsupported: {listed(sorted(unsupported))})"
            + (f"; GPUs {', '.join(named)} failed" if named else ""),
            "repair or reset the GPUs and restart the fabric manager, or take the partitions out of "
            "the configuration; `fmpm --list-unsupported-partitions` lists them",
        )
    coming = set(wanted) - set(active_ids(live))
    if list(fabric_health.without_links(live, coming)):
        # A GPU that is being reset has none.
        coming -= set(left_to_leases(spec, look(fabric).marks, coming))
    cut_off = list(fabric_health.without_links(live, coming))
    if cut_off:
        raise refused(
            fabric.manager.place,
            "fabric.links-down",
            f"{'; '.join(cut_off)}, so its GPUs could not talk to each other",
            "quarantine and reset these GPUs, then restart the fabric manager; `fmpm -l` lists links",
        )


def require_unused(
    spec: FabricInputs, fabric: Fabric, live: LiveTable, ids: Collection[int]
) -> None:
    """Check that no process holds a GPU of these partitions.

    Raises:
        Refused: one is held, or it cannot be known because a GPU has no PCI address.
    """
    modules = sorted({m for i in ids for m in live[i].modules})
    unknown = [m for m in modules if str(m) not in spec.gpus]
    if unknown:
        raise refused(
            fabric.manager.place,
            "fabric.addresses-missing",
            f"partitions {listed(ids)} have to be deactivated, but whether GPUs {listed(unknown)} "
            "are in use cannot be known without their PCI addresses",
            "give them in `gpus`, like {'1': '0000:86:00.0'}",
        )
    held = held_gpus(spec, fabric, live, ids)
    if held:
        raise refused(
            fabric.manager.place,
            "fabric.in-use",
            f"partitions {listed(ids)} have to be deactivated, but are in use: {'; '.join(held)}",
            "stop the VMs of these processes first" + _other_cut(spec, fabric, live),
        )


def _other_cut(spec: FabricInputs, fabric: Fabric, live: LiveTable) -> str:
    """Partitions of the same sizes that leave what is used alone, if there are any."""
    table, active = spec.partition_table, active_ids(live)
    in_use = used_partitions(spec, fabric, live, active)
    try:
        sizes = [table.partition(i).size for i in spec.wanted]
        change = plan_change(table, sizes, active=active, in_use=in_use)
    except LayoutError:
        return ""
    numbers = listed([p.id for p in change.partitions])
    return f", or write `partitions: [{numbers}]` for this node: the same sizes beside these VMs"
