"""Rules about who gets in, and whom we talk to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import DYNAMIC, Subject

_EVERYBODY = {4: 7, 6: 15}
"""Longest prefix that still means a good part of the internet, so that two halves are no way around."""


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no range of addresses ({error}); write one like 10.0.0.0/8") from None
    return text


class FirewallParameters(Parameters):
    """Whom a firewall may let in."""

    allowed: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        (),
        description="Ranges of addresses that sources must lie in; empty: any but everybody.",
    )


def open_firewall(subject: Subject, parameters: FirewallParameters) -> Iterator[str]:
    """A firewall rule or a load balancer that lets in whom it must not."""
    if subject.type == "gcp:compute/firewall:Firewall":
        props = subject.props
        closed = props.get("direction") == "EGRESS" or props.get("disabled") is True
        if closed or not props.get("allows"):
            return
        ranges = props.get("sourceRanges")
        named = props.get("sourceTags") or props.get("sourceServiceAccounts")
        if ranges is None and not named:
            yield "the firewall rule names no source, which means everybody"
        yield from _too_wide("the firewall", ranges, parameters.allowed)
    elif subject.type == "kubernetes:core/v1:Service":
        spec = subject.props.get("spec")
        ranges = spec.get("loadBalancerSourceRanges") if isinstance(spec, Mapping) else None
        yield from _too_wide("the load balancer", ranges, parameters.allowed)


def _too_wide(who: str, ranges: Any, allowed: Sequence[str]) -> Iterator[str]:
    networks = []
    for text in ranges if isinstance(ranges, list) else []:
        try:
            networks.append(ipaddress.ip_network(str(text), strict=False))
        except ValueError:
            continue  # not known yet, or masked
    wide = sorted(str(n) for n in networks if n.prefixlen <= _EVERYBODY[n.version])
    if wide and not allowed:
        yield f"{who} lets everybody in ({', '.join(wide)})"
    if allowed:
        within = [ipaddress.ip_network(text) for text in allowed]
        beside = sorted(
            str(network)
            for network in networks
            if not any(
                network.version == one.version and network.subnet_of(one)  # type: ignore[arg-type]
                for one in within
            )
        )
        if beside:
            yield f"{who} lets in {', '.join(beside)}, which is not allowed"


def host_key(subject: Subject, _parameters: Parameters) -> Iterator[str]:
    """A connection to whoever answers."""
    reached = subject.props.get("connection")
    # A connection that is a secret as a whole cannot be looked into in a preview; ours always set the key.
    if not isinstance(reached, Mapping):
        return
    command, ours = subject.type.startswith("command:remote:"), subject.type.startswith(DYNAMIC)
    key = "hostKey" if command else "host_key"
    if command and not reached.get(key):
        yield "the command runs on whatever machine answers: its connection has no hostKey"
    elif ours and not reached.get(key):
        yield "the machine is not asked to prove who it is: its connection has no host_key"
    proxy = reached.get("proxy")
    if (command or ours) and isinstance(proxy, Mapping) and proxy and not proxy.get(key):
        yield f"the way there goes through whatever machine answers: its proxy has no {key}"
