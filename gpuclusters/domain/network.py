"""Address ranges: which overlap, and which no tenant may be given."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

METADATA = IPv4Network("169.254.0.0/16")
"""Link-local: the metadata service of clouds and of many BMCs."""

EVERYTHING = IPv4Network("0.0.0.0/0")


def overlapping(network: IPv4Network, others: Iterable[IPv4Network]) -> tuple[IPv4Network, ...]:
    """Those of the other networks that share an address with this one."""
    return tuple(other for other in others if network.overlaps(other))


def containing(address: IPv4Address, networks: Iterable[IPv4Network]) -> tuple[IPv4Network, ...]:
    """The networks that the address lies in."""
    return tuple(network for network in networks if address in network)
