"""What Google Cloud would refuse, or nobody would notice in time; paths are below `hosts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.config.fault import show, show_values
from gpuclusters.config.gcp import (
    IAP_RANGE,
    GcpGroup,
    GcpHosts,
    IapAccess,
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
        yield from _gpus(group, at)
        yield from _zones_have(hosts, group)
        yield from _provisioning(group, at)
        yield from _disk(group, at)
    yield from _networks(hosts, ranges)
    yield from _image(hosts)
    yield from _public_addresses(hosts)


def _gpus(group: GcpGroup, at: Path) -> Iterator[Wrong]:
    """The machine type can have the GPUs, and so many of them."""
    size, gpu, type_path = machine_type(group.machine_type), group.gpu, (*at, "machine-type")
    if size is None:  # the type of the value has said so
        return
    if size.built_in is not None:
        given = f"{{product: {size.built_in.product}, count: {size.gpus}}}"
        if gpu is None:
            wrong = f"is missing, and {group.machine_type} comes with {size.gpus} {size.built_in.product}"
            yield Wrong((*at, "gpu"), wrong, f"write {given}, which says what is paid for")
        elif (gpu.product, gpu.count) != (size.built_in.product, size.gpus):
            wrong = f"is not what {group.machine_type} comes with"
            remedy = f"write {given}, or another machine type"
            yield Wrong((*at, "gpu"), wrong, remedy, f"{gpu.count} {gpu.product}")
        return
    if gpu is None:
        return
    found = machine_types.attachable(gpu.product)
    if found is None:
        wrong = f"cannot be given {gpu.product}, which comes with machine types of its own"
        yield Wrong(type_path, wrong, f"write {_types_with(gpu.product, gpu.count)}")
    elif not size.takes_gpus:
        wrong = f"cannot be given GPUs: {gpu.product} goes with N1 machines alone"
        yield Wrong(type_path, wrong, "write one like n1-standard-8, or custom-12-79872")
    elif gpu.count not in found[1].counts:
        wrong = f"is not a number of {gpu.product} that a machine can have"
        yield Wrong((*at, "gpu", "count"), wrong, f"write {either(map(str, found[1].counts))}")
    else:
        enough = [
            count
            for count, (vcpus, memory) in found[1].counts.items()
            if size.vcpus <= vcpus and size.memory_gib <= memory
        ]
        vcpus, memory = found[1].counts[gpu.count]
        if gpu.count not in enough:
            yield Wrong(
                type_path,
                f"has {size.vcpus} vCPUs and {size.memory_gib:g} GiB, and with {gpu.count} {gpu.product} "
                f"{vcpus} and {memory} are the most",
                f"write a smaller machine type{f', or {enough[0]} GPUs' if enough else ''}",
            )


def _types_with(product: str, count: int) -> str:
    given = {
        name: gpus
        for family in machine_types.table().built_in.values()
        if family.product == product
        for name, (gpus, _, _) in family.types.items()
    }
    return either([name for name, gpus in given.items() if gpus == count] or given)


def _zones_have(hosts: GcpHosts, group: GcpGroup) -> Iterator[Wrong]:
    """Every zone sells what the group asks for."""
    size = machine_type(group.machine_type)
    if size is not None and size.built_in is not None:
        known, what = size.built_in.zones, group.machine_type
    elif group.gpu is not None and (found := machine_types.attachable(group.gpu.product)):
        known, what = found[1].zones, group.gpu.product
    else:
        return
    if lacking := [zone for zone in hosts.zones if zone not in known]:
        near = [zone for zone in known if region(zone) == hosts.region]
        elsewhere = sorted({region(zone) for zone in known})
        yield Wrong(
            "zones",
            f"has {either(lacking, 'and')} without {what}, which the group {group.name} has"
            f" (as of {machine_types.table().as_of})",
            f"write {either(near)}" if near else f"write zones of {either(elsewhere)}",
            show_values(hosts.zones),
        )


def _provisioning(group: GcpGroup, at: Path) -> Iterator[Wrong]:
    """What may be taken back at any time runs no control plane, and is sold that way."""
    path = (*at, "provisioning")
    if group.provisioning is Provisioning.SPOT and group.role == "controller":
        wrong = "lets Google take the control plane back at any time, and the cluster with it"
        yield Wrong(path, wrong, "write standard; workers may be spot")
    size = machine_type(group.machine_type)
    if size and size.built_in and group.provisioning not in size.built_in.provisioning:
        ways = size.built_in.elsewhere
        also = f" ({either(ways)} is sold too, which this program does not ask for)" if ways else ""
        remedy = f"write {either(size.built_in.provisioning)}, or a larger machine type{also}"
        yield Wrong(path, f"is not how {group.machine_type} is sold", remedy)


def _networks(hosts: GcpHosts, ranges: Mapping[str, IPv4Network]) -> Iterator[Wrong]:
    """The subnet is private, large enough, and collides with nothing."""
    cidr, path = hosts.network.cidr, ("network", "cidr")
    for what, network in {**ranges, **GOOGLE_RANGES}.items():
        if cidr.overlaps(network):
            wrong = f"overlaps with {what}, which is {network}"
            yield Wrong(path, wrong, "write another private range, for example 10.10.0.0/18")
    if not isinstance(hosts.network, OwnNetwork):
        return
    room, machines = cidr.num_addresses - RESERVED_ADDRESSES, len(hosts.machines)
    if not cidr.is_private:
        yield Wrong(path, "is not a private range", "write one within 10.0.0.0/8")
    elif room < machines:
        wrong = f"has room for {max(room, 0)} machines, and there are {machines}"
        yield Wrong(path, wrong, "write a wider range")


def _public_addresses(hosts: GcpHosts) -> Iterator[Wrong]:
    """The ranges that may log in are those of people, not of the internet."""
    if isinstance(hosts.access, IapAccess):
        return
    for number, network in enumerate(hosts.access.ranges):
        path = ("access", "ranges", number)
        if network.is_private and hosts.access.public_addresses:
            wrong = "is a private range, and nobody comes from one to a public address"
            remedy = "write the range as the internet sees you, or leave public-addresses out"
            yield Wrong(path, wrong, remedy)
        if network.prefixlen < WIDEST_PREFIX and not network.is_private:
            wrong = "lets a large part of the internet try to log in"
            yield Wrong(path, wrong, f"write ranges of /{WIDEST_PREFIX} or less, or source: iap")


def _zones(hosts: GcpHosts) -> Iterator[Wrong]:
    for number, zone in enumerate(hosts.zones):
        if region(zone) != hosts.region:
            wrong = f"is in another region than {hosts.zones[0]}, and a cluster has one"
            remedy = f"write zones of {hosts.region}, or a second cluster"
            yield Wrong(("zones", number), wrong, remedy)
        if zone in hosts.zones[:number]:
            yield Wrong(("zones", number), "stands there twice", "remove one of them")


def _names(hosts: GcpHosts, cluster: str) -> Iterator[Wrong]:
    counts = Counter(hosts.machines)
    groups = Counter(group.name for group in hosts.groups)
    for number, group in enumerate(hosts.groups):
        at = ("groups", number)
        if groups[group.name] > 1:
            yield Wrong((*at, "name"), "is the name of two groups", "give each its own")
        for position, name in enumerate(group.machines):
            path, full = (*at, "machines", position), instance_name(cluster, name)
            if counts[name] > 1:
                yield Wrong(path, "is the name of two machines", "give each its own")
            if len(full) > LONGEST_NAME:
                wrong = f"makes a machine's name of {len(full)} characters, and {LONGEST_NAME} are the most"
                remedy = "write a shorter name for the machine or the cluster"
                yield Wrong(path, wrong, remedy, show(full))
            if not full[0].isalpha():
                wrong = "makes a machine's name that begins with a digit"
                yield Wrong(path, wrong, "begin with a letter", show(full))


def _disk(group: GcpGroup, at: Path) -> Iterator[Wrong]:
    least, needs = SMALLEST_DISK_GIB, "Kubernetes and its images"
    if group.gpu is not None:
        least, needs = SMALLEST_GPU_DISK_GIB, "driver, toolkit and images of frameworks"
    if group.disk.size_gib < least:
        remedy = f"write {least} at the least; 256 is the default"
        yield Wrong((*at, "disk", "size-gib"), f"leaves no room for {needs}", remedy)


def _image(hosts: GcpHosts) -> Iterator[Wrong]:
    image, public = hosts.image, public_system(hosts.image)
    key, name = ("name", image.name) if isinstance(image, PinnedImage) else ("family", image.family)
    if public is None and image.system is None:
        wrong = f"is missing, and the name {name} does not say which operating system it is"
        yield Wrong("image.system", wrong, f"write {either(SYSTEMS)}")
    elif public and image.system and public != image.system:
        yield Wrong("image.system", f"is not that of {name}, which is {public}", "leave it out")
    elif public and public not in SYSTEMS:
        wrong = f"is a public image of {public}, which has no cloud-init to bring the host key"
        remedy = f"write one of {either(SYSTEMS)}, or an image of your own with cloud-init"
        yield Wrong(("image", key), wrong, remedy)
    if "arm64" in name or "aarch64" in name:
        wrong = "is for ARM, and the machines here have x86 processors"
        yield Wrong(("image", key), wrong, "write the one with amd64")
