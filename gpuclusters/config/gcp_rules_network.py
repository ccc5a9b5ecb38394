"""Rules of the network of machines on Google Cloud: ranges that collide, and who may log in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts, IapAccess, OwnNetwork
from gpuclusters.core.finding import Finding, Path

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
