"""What must hold together in `hosts` with `source: gcp`, for every cluster type that makes machines there.

Pure functions over the section: what Google Cloud would refuse after half of a cluster is paid for, and what
nobody would notice until a driver does not load or a pod cannot be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.gcp import (
    GcpGroup,
    GcpHosts,
    IapAccess,
    OwnNetwork,
    PinnedImage,
    System,
    instance_name,
    public_system,
)
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


RESERVED_ADDRESSES = 4
"""Of every subnet Google keeps the first two and the last two."""
GOOGLE_RANGES = {
    "what Google keeps for health checks and IAP": IPv4Network("35.235.240.0/20"),
    "docker0 of every host": IPv4Network("172.17.0.0/16"),
    "link-local addresses, with the metadata server": IPv4Network("169.254.0.0/16"),
}
WIDEST_PREFIX = 16
"""0.0.0.0/1 twice is 0.0.0.0/0 too."""


def networks(hosts: GcpHosts, path: Path, ranges: Mapping[str, IPv4Network]) -> Iterator[Finding]:
    """The subnet is private, large enough, and collides with nothing."""
    cidr = hosts.network.cidr
    at = (*path, "network", "cidr")
    for what, network in {**ranges, **GOOGLE_RANGES}.items():
        if cidr.overlaps(network):
            yield finding(
                at,
                f"overlaps with {what}, which is {network}: packets for one would go to the other",
                show(str(cidr)),
                "write another private range, for example 10.10.0.0/18",
            )
    if isinstance(hosts.network, OwnNetwork):
        room = cidr.num_addresses - RESERVED_ADDRESSES
        if not cidr.is_private:
            yield finding(
                at, "is not a private range", show(str(cidr)), "write one within 10.0.0.0/8"
            )
        elif room < len(hosts.machines):
            yield finding(
                at,
                f"has room for {max(room, 0)} machines, and there are {len(hosts.machines)}",
                show(str(cidr)),
                "write a wider range",
            )


def public_addresses(hosts: GcpHosts, path: Path) -> Iterator[Finding]:
    """The ranges that may log in are those of people, not of the internet."""
    if isinstance(hosts.access, IapAccess):
        return
    for number, network in enumerate(hosts.access.ranges):
        if network.is_private and hosts.access.public_addresses:
            yield finding(
                (*path, "access", "ranges", number),
                "is a private range, and nobody comes from one to a public address",
                show(str(network)),
                "write the range as the internet sees you, or leave public-addresses out",
            )
        if network.prefixlen < WIDEST_PREFIX and not network.is_private:
            yield finding(
                (*path, "access", "ranges", number),
                "lets a large part of the internet try to log in",
                show(str(network)),
                f"write ranges of /{WIDEST_PREFIX} or less, or source: iap",
            )


SYSTEMS: tuple[System, ...] = ("ubuntu-22.04", "ubuntu-24.04")
"""Whose public images have cloud-init, which gives a machine its host key before its SSH server starts."""
LONGEST_NAME = 63
SMALLEST_DISK_GIB = 50
"""System, Kubernetes and its images."""
SMALLEST_GPU_DISK_GIB = 100
"""The same with driver, container toolkit and one image of a framework, each 10 to 20 GiB."""


def check(
    hosts: GcpHosts,
    *,
    nodes: int | None = None,
    path: Path = ("hosts",),
    cluster: str = "",
    ranges: Mapping[str, IPv4Network] | None = None,
    systems: Collection[System] = SYSTEMS,
) -> Iterable[Finding]:
    """Everything that is wrong with the machines.

    Args:
        hosts: the section.
        nodes: how many machines the rest of the configuration asks for; None if it asks by name.
        path: where the section stands within that of the cluster type.
        cluster: name of the cluster, with which names on Google Cloud begin.
        ranges: networks of the cluster by their key, which must not collide with that of the machines.
        systems: operating systems that the cluster type can prepare, as public images.
    """
    yield from _zones(hosts, path)
    yield from _names(hosts, path, cluster)
    if nodes is not None and nodes != len(hosts.machines):
        yield finding(
            (*path, "groups"),
            f"has {len(hosts.machines)} machines, and the cluster has {nodes} nodes",
            show_values(hosts.machines),
            "name one machine for each node",
        )
    for number, group in enumerate(hosts.groups):
        at = (*path, "groups", number)
        yield from gpus(group, at)
        yield from zones_have(hosts, group, at)
        yield from provisioning(group, at)
        yield from _disk(group, at)
    yield from networks(hosts, path, ranges or {})
    yield from _image(hosts, path, systems)
    yield from public_addresses(hosts, path)


def _zones(hosts: GcpHosts, path: Path) -> Iterator[Finding]:
    for number, zone in enumerate(hosts.zones):
        at = (*path, "zones", number)
        if region(zone) != hosts.region:
            yield finding(
                at,
                f"is in another region than {hosts.zones[0]}: a subnet, and so a cluster, has one",
                show(zone),
                f"write zones of {hosts.region}, or a second cluster",
            )
        if zone in hosts.zones[:number]:
            yield finding(at, "stands there twice", show(zone), "remove one of them")


def _names(hosts: GcpHosts, path: Path, cluster: str) -> Iterator[Finding]:
    counts = Counter(hosts.machines)
    groups = Counter(group.name for group in hosts.groups)
    for number, group in enumerate(hosts.groups):
        if groups[group.name] > 1:
            yield finding(
                (*path, "groups", number, "name"),
                "is the name of two groups",
                show(group.name),
                "give each its own",
            )
        for position, name in enumerate(group.machines):
            at = (*path, "groups", number, "machines", position)
            full = instance_name(cluster, name) if cluster else name
            if counts[name] > 1:
                yield finding(at, "is the name of two machines", show(name), "give each its own")
            if len(full) > LONGEST_NAME:
                yield finding(
                    at,
                    f"makes a machine's name of {len(full)} characters, and {LONGEST_NAME} are the most",
                    show(full),
                    "write a shorter name for the machine or the cluster",
                )
            if not full[0].isalpha():
                yield finding(
                    at,
                    "makes a machine's name that begins with a digit, which Google Cloud refuses",
                    show(full),
                    "begin with a letter",
                )


def _disk(group: GcpGroup, at: Path) -> Iterator[Finding]:
    least = SMALLEST_DISK_GIB if group.gpu is None else SMALLEST_GPU_DISK_GIB
    if group.disk.size_gib < least:
        needs = (
            "driver, toolkit and images of frameworks" if group.gpu else "Kubernetes and its images"
        )
        yield finding(
            (*at, "disk", "size-gib"),
            f"leaves no room for {needs}",
            show(group.disk.size_gib),
            f"write {least} at the least; 256 is the default",
        )


def _image(hosts: GcpHosts, path: Path, systems: Collection[System]) -> Iterator[Finding]:
    image = hosts.image
    name = image.name if isinstance(image, PinnedImage) else image.family
    key = "name" if isinstance(image, PinnedImage) else "family"
    public = public_system(image)
    if public is None and image.system is None:
        yield finding(
            (*path, "image", "system"),
            f"is missing, and the name {name} does not say which operating system it is",
            "nothing",
            f"write {either(systems)}",
        )
    elif public and image.system and public != image.system:
        yield finding(
            (*path, "image", "system"),
            f"is not that of {name}, which is {public}",
            show(image.system),
            "leave it out",
        )
    elif public and public not in systems:
        yield finding(
            (*path, "image", key),
            f"is a public image of {public}, and those have no cloud-init, which gives a machine its"
            " host key before anybody logs in",
            show(name),
            f"write one of {either(systems)}, or an image of your own with cloud-init",
        )
    if "arm64" in name or "aarch64" in name:
        yield finding(
            (*path, "image", key),
            "is for ARM, and the machines here have x86 processors",
            show(name),
            "write the one with amd64",
        )
