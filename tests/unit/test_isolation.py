"""What a tenant can reach, asked of the rendered policies the way Cilium would read them."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from gpuclusters.domain.isolation import (
    Egress,
    Network,
    infrastructure_denial,
    namespace_labels,
    network_policies,
)

NETWORK = Network(infrastructure_cidrs=("192.0.2.0/24",))


def rules(policies: Any, direction: str) -> list[dict[str, Any]]:
    return [rule for spec in policies.values() for rule in spec.get(direction, [])]


def open_cidr(policies: Any, address: str) -> bool:
    """Whether some egress rule by range lets this address through."""
    ip = ipaddress.ip_address(address)
    for rule in rules(policies, "egress"):
        for entry in rule.get("toCIDRSet", []):
            closed = any(ip in ipaddress.ip_network(c) for c in entry.get("except", []))
            if ip in ipaddress.ip_network(entry["cidr"]) and not closed:
                return True
    return False


def test_a_tenant_without_egress_reaches_itself_and_dns_only() -> None:
    policies = network_policies(["acme"], Egress(), NETWORK)
    assert set(policies) == {"isolate", "allow-dns"}
    assert rules(policies, "ingress") == [{"fromEndpoints": [{}]}]
    assert not open_cidr(policies, "203.0.113.9")


def test_dns_goes_through_the_proxy_so_that_rules_by_name_can_match() -> None:
    policies = network_policies(["acme"], Egress(fqdns=("example.org", "*.example.org")), NETWORK)
    (port,) = policies["allow-dns"]["egress"][0]["toPorts"]
    assert port["rules"] == {"dns": [{"matchPattern": "*"}]}
    assert {p["protocol"] for p in port["ports"]} == {"UDP", "TCP"}
    assert policies["allow-names"]["egress"][0]["toFQDNs"] == [
        {"matchPattern": "*.example.org"},
        {"matchName": "example.org"},
    ]


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("203.0.113.9", True),
        ("10.1.2.3", False),
        ("172.20.0.1", False),
        ("192.168.7.7", False),
        ("100.100.0.1", False),
        ("169.254.169.254", False),
        ("192.0.2.77", False),
    ],
)
def test_the_internet_ends_at_private_ranges_metadata_and_our_machines(
    address: str, reachable: bool
) -> None:
    policies = network_policies(["acme"], Egress(internet=True), NETWORK)
    assert open_cidr(policies, address) is reachable


def test_nfs_opens_the_storage_range_on_nfs_ports_only() -> None:
    policies = network_policies(["acme"], Egress(nfs_cidrs=("10.9.0.0/24",)), NETWORK)
    (rule,) = policies["allow-nfs"]["egress"]
    assert rule["toCIDRSet"] == [{"cidr": "10.9.0.0/24"}]
    assert {p["port"] for p in rule["toPorts"][0]["ports"]} == {"2049", "111"}


def test_namespaces_of_one_tenant_reach_each_other_by_name() -> None:
    policies = network_policies(["acme-b", "acme-a"], Egress(), NETWORK)
    (selector,) = policies["isolate"]["ingress"][0]["fromEndpoints"]
    assert selector["matchExpressions"][0]["values"] == ["acme-a", "acme-b"]


def test_no_tenant_reaches_the_fabric_manager_or_a_kubelet_whatever_its_own_policies_allow() -> (
    None
):
    spec = infrastructure_denial(NETWORK)
    ports = {
        port["port"]
        for rule in spec["egressDeny"]
        for entry in rule.get("toPorts", [])
        for port in entry["ports"]
    }
    assert {"6666", "10250"} <= ports
    cidrs = {e["cidr"] for rule in spec["egressDeny"] for e in rule.get("toCIDRSet", [])}
    assert cidrs == {"169.254.0.0/16", "192.0.2.0/24"}
    assert spec["enableDefaultDeny"] == {"egress": False, "ingress": False}


def test_pod_security_is_pinned_to_one_version_in_every_mode() -> None:
    labels = namespace_labels("acme", pod_security="restricted", version="v1.36")
    assert labels["gpu-clusters.dev/tenant"] == "acme"
    for mode in ("enforce", "audit", "warn"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"
        assert labels[f"pod-security.kubernetes.io/{mode}-version"] == "v1.36"
