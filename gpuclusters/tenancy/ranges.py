"""Addresses and names: which ranges overlap, which no tenant may reach, which names are not for tenants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Range = IPv4Network | IPv6Network

METADATA = IPv4Network("169.254.0.0/16")
"""Link-local: the metadata service of clouds and of many BMCs."""

EVERYTHING = IPv4Network("0.0.0.0/0")

NEVER_FOR_TENANTS: tuple[Range, ...] = (
    METADATA,
    IPv4Network("127.0.0.0/8"),
    IPv6Network("::1/128"),
    # Link-local and unique local addresses, among them the metadata service fd00:ec2::254.
    IPv6Network("fe80::/10"),
    IPv6Network("fc00::/7"),
    # IPv4 addresses in IPv6 clothes: mapped, NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056).
    IPv6Network("::ffff:0:0/96"),
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("2002::/16"),
)
"""What every tenant is denied in every cluster."""

LOCAL_ZONES = ("localhost", "localdomain", "local", "internal", "svc", "home.arpa")
"""Domains whose names mean something near by: this pod, its cluster, its cloud (metadata.google.internal)."""


def overlapping(network: Range, others: Iterable[Range]) -> tuple[Range, ...]:
    """Those of the other networks that share an address with this one."""
    return tuple(other for other in others if network.overlaps(other))


def containing(address: Address, networks: Iterable[Range]) -> tuple[Range, ...]:
    """The networks that the address lies in."""
    return tuple(network for network in networks if address in network)


def literal(host: str) -> Address | None:
    """The address that a host is given by; None if it is given by a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def joined(ranges: Iterable[Range]) -> tuple[str, ...]:
    """The same addresses in as few ranges as possible: those of IPv4, then those of IPv6."""
    stated = list(ranges)
    old = collapse_addresses(one for one in stated if isinstance(one, IPv4Network))
    new = collapse_addresses(one for one in stated if isinstance(one, IPv6Network))
    return (*map(str, old), *map(str, new))


def around(address: Address) -> Range:
    """The range that an address is in, if networks are as large as most are: a /24, or a /64 of IPv6."""
    return ip_network(f"{address}/{24 if address.version == 4 else 64}", strict=False)


def may_name(pattern: str, zone: str) -> bool:
    """Whether a name or pattern of a rule by name stands for the zone itself or for a name below it.

    As Cilium reads patterns: `*` is any part of one label, `**.` in front any labels.
    """
    labels, wanted = _labels(pattern), _labels(zone)
    return _below(labels, wanted) or (len(labels) == len(wanted) and _same(labels, wanted))


def names(pattern: str, host: str) -> bool:
    """Whether a name or pattern of a rule by name stands for this very host."""
    labels, wanted = _labels(pattern), _labels(host)
    if labels[-1] == "**" and len(labels) <= len(wanted):
        return _same(labels[:-1], wanted[: len(labels) - 1])
    return len(labels) == len(wanted) and _same(labels, wanted)


def _labels(name: str) -> list[str]:
    """From the last label to the first."""
    return name.lower().removesuffix(".").split(".")[::-1]


def _below(labels: list[str], zone: list[str]) -> bool:
    if labels[-1] == "**" and len(labels) <= len(zone):
        return _same(labels[:-1], zone[: len(labels) - 1])
    return len(labels) > len(zone) and _same(labels[: len(zone)], zone)


def _same(labels: list[str], wanted: list[str]) -> bool:
    return all(
        re.fullmatch(".*".join(map(re.escape, re.split(r"\*+", label))), name)
        for label, name in zip(labels, wanted, strict=True)
    )
