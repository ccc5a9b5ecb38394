"""What Google Cloud would refuse, or nobody would notice in time; paths are below `hosts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from gpuclusters.config.fault import show, show_values
from gpuclusters.config.gcp import (
    IAP_RANGE,
    GcpHosts,
    IapAccess,
    MachineKind,
    OwnNetwork,
    PinnedImage,
    System,
    either,
    instance_name,
    public_system,
)
from gpuclusters.config.rules.rule import Wrong, Wrongs
from gpuclusters.core.finding import Path
from gpuclusters.gcp import machine_types
from gpuclusters.gcp.machine_types import Provisioning, machine_type, region
from gpuclusters.usernetes.addresses import DOCKER_BRIDGE

RESERVED_ADDRESSES = 4
"""Of every subnet Google keeps the first two and the last two."""
GOOGLE_RANGES = {
    "what Google keeps for health checks and IAP": IPv4Network(IAP_RANGE),
    "docker0 of every host": DOCKER_BRIDGE,
    "link-local addresses, with the metadata server": IPv4Network("169.254.0.0/16"),
}
WIDEST_PREFIX = 16
"""0.0.0.0/1 twice is 0.0.0.0/0 too."""
SYSTEMS: tuple[System, ...] = ("ubuntu-22.04", "ubuntu-24.04")
"""Whose public images have cloud-init, which gives a machine its host key before its SSH server starts."""
LONGEST_NAME = 63
SMALLEST_DISK_GIB = 50
"""System, Kubernetes and its images."""
SMALLEST_GPU_DISK_GIB = 100
"""The same with driver, container toolkit and one image of a framework, each 10 to 20 GiB."""


def check(hosts: GcpHosts, *, cluster: str, ranges: Mapping[str, IPv4Network]) -> Wrongs:
    """Everything that is wrong with the machines; `ranges` are the cluster's networks by key."""
    yield from _zones(hosts)
    yield from _names(hosts, cluster)
    for number, group in enumerate(hosts.groups):
        at = ("groups", number)
        yield from machines(group, at)
        yield from zones_have(hosts.zones, group, f"the group {group.name}")
        if group.provisioning is Provisioning.SPOT and group.role == "controller":
            yield Wrong((*at, "provisioning"), "spot-controller")
    yield from _networks(hosts, ranges)
    yield from _image(hosts)
    yield from _public_addresses(hosts)


def machines(group: MachineKind, at: Path) -> Iterator[Wrong]:
    """There are such machines, with room on their disks."""
    yield from _gpus(group, at)
    yield from _provisioning(group, at)
    yield from _disk(group, at)


def _gpus(group: MachineKind, at: Path) -> Iterator[Wrong]:
    """The machine type can have the GPUs, and so many of them."""
    size, gpu, type_path = machine_type(group.machine_type), group.gpu, (*at, "machine-type")
    if size is None:  # the type of the value has said so
        return
    if size.built_in is not None:
        if gpu is None:
            yield Wrong((*at, "gpu"), "gpu-unstated", group=group, size=size)
        elif (gpu.product, gpu.count) != (size.built_in.product, size.gpus):
            got = f"{gpu.count} {gpu.product}"
            yield Wrong((*at, "gpu"), "gpu-built-in", got=got, group=group, size=size)
        return
    if gpu is None:
        return
    found = machine_types.attachable(gpu.product)
    if found is None:
        types = _types_with(gpu.product, gpu.count)
        yield Wrong(type_path, "no-such-gpu", gpu=gpu, types=types)
    elif not size.takes_gpus:
        yield Wrong(type_path, "no-gpus", gpu=gpu)
    elif gpu.count not in found[1].counts:
        counts = either(map(str, found[1].counts))
        yield Wrong((*at, "gpu", "count"), "gpu-count", gpu=gpu, counts=counts)
    else:
        enough = [
            count
            for count, (vcpus, memory) in found[1].counts.items()
            if size.vcpus <= vcpus and size.memory_gib <= memory
        ]
        vcpus, memory = found[1].counts[gpu.count]
        if gpu.count not in enough:
            has = f"{size.vcpus} vCPUs and {size.memory_gib:g} GiB"
            most, case = f"{vcpus} and {memory}", "too-large" if enough else "larger-than-any"
            yield Wrong(type_path, case, has=has, gpu=gpu, most=most, enough=enough[:1])


def _types_with(product: str, count: int) -> str:
    given = {
        name: gpus
        for family in machine_types.table().built_in.values()
        if family.product == product
        for name, (gpus, _, _) in family.types.items()
    }
    return either([name for name, gpus in given.items() if gpus == count] or given)


def zones_have(
    zones: Sequence[str], group: MachineKind, what_has: str, path: str = "zones"
) -> Iterator[Wrong]:
    """Every zone sells what the group asks for."""
    size = machine_type(group.machine_type)
    if size is not None and size.built_in is not None:
        known, what = size.built_in.zones, group.machine_type
    elif group.gpu is not None and (found := machine_types.attachable(group.gpu.product)):
        known, what = found[1].zones, group.gpu.product
    else:
        return
    if lacking := [zone for zone in zones if zone not in known]:
        near = [zone for zone in known if region(zone) == region(zones[0])]
        others = either(near or sorted({region(zone) for zone in known}))
        case, table = "zones" if near else "regions", machine_types.table()
        said = {"lacking": either(lacking, "and"), "what": what, "others": others, "has": what_has}
        yield Wrong(path, case, got=show_values(zones), table=table, **said)


def _provisioning(group: MachineKind, at: Path) -> Iterator[Wrong]:
    """What may be taken back at any time is sold that way."""
    path = (*at, "provisioning")
    size = machine_type(group.machine_type)
    if size and size.built_in and group.provisioning not in size.built_in.provisioning:
        case = "sold-elsewhere" if size.built_in.elsewhere else "provisioning"
        ways, also = either(size.built_in.provisioning), size.built_in.elsewhere
        yield Wrong(path, case, group=group, ways=ways, also=either(also) if also else "")


def _networks(hosts: GcpHosts, ranges: Mapping[str, IPv4Network]) -> Iterator[Wrong]:
    """The subnet is private, large enough, and collides with nothing."""
    cidr, path = hosts.network.cidr, ("network", "cidr")
    for what, network in {**ranges, **GOOGLE_RANGES}.items():
        if cidr.overlaps(network):
            yield Wrong(path, "overlap", what=what, network=network)
    if not isinstance(hosts.network, OwnNetwork):
        return
    room, machines = cidr.num_addresses - RESERVED_ADDRESSES, len(hosts.machines)
    if not cidr.is_private:
        yield Wrong(path, "public-network")
    elif room < machines:
        yield Wrong(path, "small-network", left=max(room, 0), machines=machines)


def _public_addresses(hosts: GcpHosts) -> Iterator[Wrong]:
    """The ranges that may log in are those of people, not of the internet."""
    if isinstance(hosts.access, IapAccess):
        return
    for number, network in enumerate(hosts.access.ranges):
        path = ("access", "ranges", number)
        if network.is_private and hosts.access.public_addresses:
            yield Wrong(path, "private-access")
        if is_wide(network):
            yield Wrong(path, "wide-access", prefix=WIDEST_PREFIX)


def is_wide(network: IPv4Network) -> bool:
    """Whether a range is the internet's rather than somebody's."""
    return network.prefixlen < WIDEST_PREFIX and not network.is_private


def _zones(hosts: GcpHosts) -> Iterator[Wrong]:
    for number, zone in enumerate(hosts.zones):
        if region(zone) != hosts.region:
            yield Wrong(("zones", number), "region", hosts=hosts, first=hosts.zones[0])
        if zone in hosts.zones[:number]:
            yield Wrong(("zones", number), "zone-twice")


def _names(hosts: GcpHosts, cluster: str) -> Iterator[Wrong]:
    counts = Counter(hosts.machines)
    groups = Counter(group.name for group in hosts.groups)
    for number, group in enumerate(hosts.groups):
        at = ("groups", number)
        if groups[group.name] > 1:
            yield Wrong((*at, "name"), "group-twice")
        for position, name in enumerate(group.machines):
            path, full = (*at, "machines", position), instance_name(cluster, name)
            if counts[name] > 1:
                yield Wrong(path, "machine-twice")
            if len(full) > LONGEST_NAME:
                yield Wrong(path, "long-name", got=show(full), full=len(full), most=LONGEST_NAME)
            if not full[0].isalpha():
                yield Wrong(path, "digit-first", got=show(full))


def _disk(group: MachineKind, at: Path) -> Iterator[Wrong]:
    least, needs = SMALLEST_DISK_GIB, "Kubernetes and its images"
    if group.gpu is not None:
        least, needs = SMALLEST_GPU_DISK_GIB, "driver, toolkit and images of frameworks"
    if group.disk.size_gib < least:
        yield Wrong((*at, "disk", "size-gib"), "small-disk", needs=needs, least=least)


def _image(hosts: GcpHosts) -> Iterator[Wrong]:
    image, public = hosts.image, public_system(hosts.image)
    key, name = ("name", image.name) if isinstance(image, PinnedImage) else ("family", image.family)
    if public is None and image.system is None:
        yield Wrong("image.system", "image-system", name=name, systems=either(SYSTEMS))
    elif public and image.system and public != image.system:
        yield Wrong("image.system", "image-other", name=name, public=public)
    elif public and public not in SYSTEMS:
        yield Wrong(("image", key), "image-public", public=public, systems=either(SYSTEMS))
    if "arm64" in name or "aarch64" in name:
        yield Wrong(("image", key), "arm")
