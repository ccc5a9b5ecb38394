"""What must hold together in `hosts` with `source: gcp`, for every cluster type that makes machines there.

Pure functions over the section: what Google Cloud would refuse after half of a cluster is paid for, and what
nobody would notice until a driver does not load or a pod cannot be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.config import gcp_rules_machines, gcp_rules_network
from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.gcp import GcpGroup, GcpHosts, instance_name
from gpuclusters.config.gcp_image import PinnedImage, System, public_system
from gpuclusters.config.gcp_rules_machines import either
from gpuclusters.core.finding import Finding, Path
from gpuclusters.gcp.machine_types import region

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
        yield from gcp_rules_machines.gpus(group, at)
        yield from gcp_rules_machines.zones_have(hosts, group, at)
        yield from gcp_rules_machines.provisioning(group, at)
        yield from _disk(group, at)
    yield from gcp_rules_network.networks(hosts, path, ranges or {})
    yield from _image(hosts, path, systems)
    yield from gcp_rules_network.public_addresses(hosts, path)


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
