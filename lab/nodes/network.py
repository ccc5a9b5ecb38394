"""Which addresses the nodes of a lab have: chosen so that they meet nothing of the machine's."""

import hashlib
import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

API_SERVICE = "10.96.0.1"
"""The service `kubernetes`, at which pods find the API server: it is served on every node."""

MACHINE = "10.96.0.2"
"""Where nodes and pods reach what of the machine's loopback was opened to them."""
REGISTRY_PORT = 5000

_RANGE = ipaddress.ip_network("100.64.0.0/10")
"""Shared address space (RFC 6598): neither a home's nor a company's own network."""
_PREFIX = 24
_FIRST_NODE = 10
_FIRST_BMC = 110
MOST_NODES = _FIRST_BMC - _FIRST_NODE

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The network of one lab. `machine` is the machine's own address in it."""

    subnet: Network
    interface: str
    """What the machine calls its end."""

    @property
    def machine(self) -> str:
        return str(self.subnet.network_address + 1)

    @property
    def api(self) -> str:
        """The API server's address where it has one of its own, as on a machine that is no node."""
        return str(self.subnet.network_address + 2)

    def node(self, number: int) -> str:
        """The address of the node with this number, from 0."""
        return str(self.subnet.network_address + _FIRST_NODE + number)

    def bmc(self, number: int) -> str:
        """The address of the management controller of that node's host: it is no part of the host."""
        return str(self.subnet.network_address + _FIRST_BMC + number)


def token(folder: Path) -> str:
    """By which a lab's interfaces and cgroups are told from those of others: eight digits."""
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]


def plan(folder: Path, taken: Iterable[Network]) -> NetworkPlan:
    """The network of the lab in `folder`, beside all networks that the machine has.

    It is the same at every start unless something else took it.

    Raises:
        LookupError: everything is taken.
    """
    busy = list(taken)
    name = token(folder)
    count = 1 << (_PREFIX - _RANGE.prefixlen)
    first = int(name, 16) % count
    for step in range(count):
        start = int(_RANGE.network_address) + ((first + step) % count << (32 - _PREFIX))
        subnet = ipaddress.IPv4Network((start, _PREFIX))
        if not any(subnet.overlaps(other) for other in busy):
            return NetworkPlan(subnet, f"gcl{name}")
    raise LookupError(f"every network of {_RANGE} is taken on this machine")


def networks(
    routes: Sequence[dict[str, Any]], addresses: Sequence[dict[str, Any]]
) -> list[Network]:
    """The networks in the answers of `ip -j -4 route show table all` and `ip -j -4 address`.

    The default route is none: it leads to everything that nothing else leads to.
    """
    found = {_network(route["dst"]) for route in routes if route.get("dst", "default") != "default"}
    for interface in addresses:
        for address in interface.get("addr_info", []):
            if "local" in address:
                given = f"{address['local']}/{address['prefixlen']}"
                found.add(ipaddress.IPv4Network(given, strict=False))
    return sorted(found - {ipaddress.IPv4Network("0.0.0.0/0")})


def _network(destination: str) -> Network:
    return ipaddress.IPv4Network(destination, strict=False)
