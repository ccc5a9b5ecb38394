"""Whom the cluster's own programs may talk to, asked of the policies that are rendered for them."""

from collections.abc import Iterator
from typing import Any

from gpuclusters.tenancy.programs import Place, Ports, Program, Reach, network_policies

PORTS = {
    Program.API: Ports(serves=8080, metrics=8083),
    Program.CONTROLLERS: Ports(metrics=8081),
    Program.DEVICE_PLUGIN: Ports(metrics=8082),
}
REACH = Reach(
    machines=[
        Place("10.20.0.11", 22),
        Place("2001:db8::12", 2222),
        Place("hgx-03.example.com", 22),
    ],
    management_controllers=[
        Place.of("https://10.21.0.11"),
        Place.of("https://[2001:db8::13]:8443"),
    ],
    issuer=[Place.of("https://id.example.com/realms/main"), Place.of("https://10.9.0.9:5556/keys")],
)


def ports_of(rule: Any) -> list[str]:
    return [port["port"] for entry in rule.get("toPorts", ()) for port in entry["ports"]] or ["any"]


def opened(spec: Any, direction: str) -> Iterator[tuple[str, str]]:
    """What a direction opens: to or from whom, and the port."""
    for rule in spec[direction]:
        for kind in ("toCIDRSet", "toFQDNs", "toEntities", "fromEntities"):
            for one in rule.get(kind, ()):
                whom = one if isinstance(one, str) else next(iter(one.values()))
                yield from ((whom, port) for port in ports_of(rule))


def test_every_program_is_closed_but_for_the_api_server() -> None:
    for program, spec in network_policies(Reach(), PORTS, monitored=False).items():
        assert spec["endpointSelector"] == {}
        assert spec["ingress"][0] == {}
        assert list(opened(spec, "egress")) == [("kube-apiserver", "any")], program


def test_controllers_reach_ssh_of_machines_and_redfish_of_their_bmcs() -> None:
    made = network_policies(REACH, PORTS, monitored=False)[Program.CONTROLLERS]
    assert set(opened(made, "egress")) == {
        ("kube-apiserver", "any"),
        # A machine that is a node has no address to Cilium.
        *((node, port) for node in ("host", "remote-node") for port in ("22", "2222")),
        *(("10.20.0.11/32", "22"), ("2001:db8::12/128", "2222"), ("hgx-03.example.com", "22")),
        *(("10.21.0.11/32", "443"), ("2001:db8::13/128", "8443")),
    }


def test_the_api_reaches_its_issuer_and_no_machine() -> None:
    made = network_policies(REACH, PORTS, monitored=False)[Program.API]
    assert set(opened(made, "egress")) == {
        ("kube-apiserver", "any"),
        ("id.example.com", "443"),
        ("10.9.0.9/32", "5556"),
    }
    assert {port for _, port in opened(made, "ingress")} == {"8080"}


def test_metrics_are_open_only_where_somebody_collects_them() -> None:
    for monitored in (False, True):
        for program, spec in network_policies(REACH, PORTS, monitored=monitored).items():
            ports = {port for rule in spec["ingress"] if rule for port in ports_of(rule)}
            assert (str(PORTS[program].metrics) in ports) is monitored
