"""Row 53: the API is reached where the configuration says."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address

from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.gcp import GcpHosts, OwnNetwork
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import Severity, rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_network import AddressApi
from gpuclusters.config.usernetes_rules.network import within

_ADDRESS: Path = ("api", "address")


@rule(53, needs=["api", "network"])
def the_apis_address_is_reached_from_outside(config: UsernetesConfig) -> Iterable[Flaw]:
    """The address of the API is neither a loopback nor one within the cluster."""
    if not isinstance(config.api, AddressApi):
        return
    text = config.api.address
    if _only_there(text):
        yield Flaw(
            _ADDRESS,
            "is every machine's own",
            show(text),
            "write an address of the control plane's host, or through: tunnel",
        )
    yield from within(_ADDRESS, text, config)


def _only_there(text: str) -> bool:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return text == "localhost"
    return address.is_loopback or address.is_unspecified


@rule(53, needs=["api", "hosts"])
def googles_firewall_lets_the_api_through(config: UsernetesConfig) -> Iterable[Flaw]:
    """The firewall that this program makes lets SSH in and nothing else; the API is reached through it."""
    hosts = config.hosts
    if (
        isinstance(config.api, AddressApi)
        and isinstance(hosts, GcpHosts)
        and isinstance(hosts.network, OwnNetwork)
    ):
        yield Flaw(
            ("api", "through"),
            "is address, and the firewall that is made with hosts.network lets only SSH in from outside",
            '"address"',
            "write tunnel, or a network of your own whose firewall lets the API through",
        )


@rule(53, needs=["api", "hosts"], severity=Severity.WARNING)
def the_labs_api_is_on_this_computer(config: UsernetesConfig) -> Iterable[Flaw]:
    """The lab's API answers on a port of 127.0.0.1 that the lab chose; nothing leads to another."""
    if isinstance(config.hosts, LabHosts) and config.api is not None:
        yield Flaw(
            ("api",),
            "changes nothing in the lab, whose API is on this computer",
            show(config.api.through),
            "remove it",
        )


RULES = (
    the_apis_address_is_reached_from_outside,
    googles_firewall_lets_the_api_through,
    the_labs_api_is_on_this_computer,
)
