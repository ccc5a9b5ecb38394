"""Row 53: the API is reached where the configuration says."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address

from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts, OwnNetwork
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import AddressApi, UsernetesConfig
from gpuclusters.config.usernetes_rules.network import within
from gpuclusters.core.finding import Finding, Level, Path

_ADDRESS: Path = ("api", "address")


@rule(53, "usernetes.api-address")
def the_apis_address_is_reached_from_outside(config: UsernetesConfig) -> Iterable[Finding]:
    if not isinstance(config.api, AddressApi):
        return
    text = config.api.address
    if _only_there(text):
        yield finding(
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


@rule(53, "usernetes.api-behind-firewall")
def googles_firewall_lets_the_api_through(config: UsernetesConfig) -> Iterable[Finding]:
    hosts = config.hosts
    if (
        isinstance(config.api, AddressApi)
        and isinstance(hosts, GcpHosts)
        and isinstance(hosts.network, OwnNetwork)
    ):
        yield finding(
            ("api", "through"),
            "is address, and the firewall that is made with hosts.network lets only SSH in from outside",
            '"address"',
            "write tunnel, or a network of your own whose firewall lets the API through",
        )


@rule(53, "usernetes.api-in-lab", level=Level.WARN)
def the_labs_api_is_on_this_computer(config: UsernetesConfig) -> Iterable[Finding]:
    if isinstance(config.hosts, LabHosts) and config.api is not None:
        yield finding(
            ("api",),
            "changes nothing in the lab, whose API is on this computer",
            show(config.api.through),
            "remove it",
        )
