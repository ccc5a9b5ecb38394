"""Rules of machines on Google Cloud: machine types, their GPUs, where and how they are sold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.gcp import GcpGroup, GcpHosts
from gpuclusters.core.finding import Finding, Path
from gpuclusters.gcp import machine_types
from gpuclusters.gcp.machine_types import Provisioning, machine_type, region


def gpus(group: GcpGroup, at: Path) -> Iterator[Finding]:
    """The machine type can have the GPUs, and so many of them."""
    size = machine_type(group.machine_type)
    if size is None:  # the type of the value has said so
        return
    if size.built_in is not None:
        yield from _built_in(group, size.built_in, size.gpus, at)
        return
    if group.gpu is None:
        return
    found = machine_types.attachable(group.gpu.product)
    if found is None:
        yield finding(
            (*at, "machine-type"),
            f"cannot be given {group.gpu.product}, which comes with machine types of its own",
            show(group.machine_type),
            f"write {_types_with(group.gpu.product, group.gpu.count)}",
        )
    elif not size.takes_gpus:
        yield finding(
            (*at, "machine-type"),
            f"cannot be given GPUs: {group.gpu.product} goes with N1 machines alone",
            show(group.machine_type),
            "write one like n1-standard-8, or custom-12-79872",
        )
    else:
        yield from _limits(group, size, found[1], at)


def _built_in(
    group: GcpGroup, family: machine_types.BuiltIn, count: int, at: Path
) -> Iterator[Finding]:
    if group.gpu is None:
        yield finding(
            (*at, "gpu"),
            f"is missing, and {group.machine_type} comes with {count} {family.product}",
            "nothing",
            f"write {{product: {family.product}, count: {count}}}, which says what is paid for",
        )
    elif (group.gpu.product, group.gpu.count) != (family.product, count):
        yield finding(
            (*at, "gpu"),
            f"is not what {group.machine_type} comes with",
            f"{group.gpu.count} {group.gpu.product}",
            f"write {{product: {family.product}, count: {count}}}, or another machine type",
        )


def _limits(
    group: GcpGroup, size: machine_types.MachineType, row: machine_types.Attachable, at: Path
) -> Iterator[Finding]:
    if group.gpu is None:
        return
    limits = row.counts.get(group.gpu.count)
    if limits is None:
        yield finding(
            (*at, "gpu", "count"),
            f"is not a number of {group.gpu.product} that a machine can have",
            show(group.gpu.count),
            f"write {either(map(str, row.counts))}",
        )
        return
    vcpus, memory = limits
    if size.vcpus > vcpus or size.memory_gib > memory:
        enough = [n for n, (v, m) in row.counts.items() if size.vcpus <= v and size.memory_gib <= m]
        more = f", or {enough[0]} GPUs" if enough else ""
        yield finding(
            (*at, "machine-type"),
            f"has {size.vcpus} vCPUs and {size.memory_gib:g} GiB, and with {group.gpu.count}"
            f" {group.gpu.product} {vcpus} and {memory} are the most",
            show(group.machine_type),
            f"write a smaller machine type{more}",
        )


def _types_with(product: str, count: int) -> str:
    rows = [
        family for family in machine_types.table().built_in.values() if family.product == product
    ]
    given = [(name, one[0]) for family in rows for name, one in family.types.items()]
    fitting = [name for name, gpus in given if gpus == count]
    return either(fitting or [name for name, _ in given])


def either(values: Iterable[str]) -> str:
    """One of several, in words."""
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


def zones_have(hosts: GcpHosts, group: GcpGroup, at: Path) -> Iterator[Finding]:
    """Every zone sells what the group asks for."""
    size = machine_type(group.machine_type)
    known: tuple[str, ...] | None = None
    if size is not None and size.built_in is not None:
        known, what = size.built_in.zones, group.machine_type
    elif group.gpu is not None and (found := machine_types.attachable(group.gpu.product)):
        known, what = found[1].zones, group.gpu.product
    if known is None:
        return
    lacking = [zone for zone in hosts.zones if zone not in known]
    if lacking:
        near = [zone for zone in known if region(zone) == hosts.region]
        elsewhere = sorted({region(zone) for zone in known})
        yield finding(
            (*at[:-2], "zones"),
            f"has {both(lacking)} without {what}, which the group {group.name} has"
            f" (as of {machine_types.table().as_of})",
            show_values(hosts.zones),
            f"write {either(near)}" if near else f"write zones of {either(elsewhere)}",
        )


def both(values: Collection[str]) -> str:
    """All of several, in words."""
    *others, last = values
    return f"{', '.join(others)} and {last}" if others else last


def _also(ways: tuple[str, ...]) -> str:
    return f" ({either(ways)} is sold too, which this program does not ask for)" if ways else ""


def provisioning(group: GcpGroup, at: Path) -> Iterator[Finding]:
    """What may be taken back at any time runs no control plane, and is sold that way."""
    spot = group.provisioning is Provisioning.SPOT
    if spot and group.role == "controller":
        yield finding(
            (*at, "provisioning"),
            "lets Google take the control plane back at any time, and the cluster with it",
            show(group.provisioning.value),
            "write standard; workers may be spot",
        )
    size = machine_type(group.machine_type)
    if size and size.built_in and group.provisioning not in size.built_in.provisioning:
        sold = either(one.value for one in size.built_in.provisioning)
        yield finding(
            (*at, "provisioning"),
            f"is not how {group.machine_type} is sold",
            show(group.provisioning.value),
            f"write {sold}, or a larger machine type{_also(size.built_in.elsewhere)}",
        )
