"""What a configuration closes to tenants: addresses of machines and BMCs, names of the cluster."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.config.fault import render_path
from gpuclusters.config.plan import plan
from gpuclusters.tenancy.isolation import baseline
from tests.unit.config.documents import accepted, base, faults, on_existing, patched

CASES = Path(__file__).with_name("closed_doors.yaml")
ADDRESSES = ("10.20.0.11", "2001:db8:20::12")
NODES = [
    {"name": "hgx-01", "bmc": {"url": "https://10.21.0.11", "user": "reader"}},
    {"name": "hgx-02", "bmc": {"url": "https://[2001:db8:21::12]:8443", "user": "reader"}},
]
RANGES = {
    "node-cidrs": ["10.20.0.0/23", "2001:db8:20::/64"],
    "bmc-cidrs": ["10.21.0.0/23", "2001:db8:21::/64"],
}


def denied(address: str) -> bool:
    """Whether the policy of all tenants denies an address, as Cilium reads it."""
    document = on_existing(*ADDRESSES, nodes=NODES, network=RANGES)
    spec = baseline(plan(accepted(document).section).network)
    ranges = [entry["cidr"] for rule in spec["egressDeny"] for entry in rule.get("toCIDRSet", ())]
    return any(ip_address(address) in ip_network(one) for one in ranges)


@pytest.mark.parametrize(
    "address",
    [
        *("10.20.0.11", "2001:db8:20::12", "10.21.0.11", "2001:db8:21::12"),
        *("192.168.250.1", "192.168.250.2", "10.244.7.7", "10.96.0.10", "127.0.0.1", "::1"),
        *("169.254.169.254", "fe80::1", "fd00:ec2::254"),
        # 10.21.0.11 again: mapped, by NAT64, by 6to4.
        *("::ffff:10.21.0.11", "64:ff9b::a15:b", "2002:a15:b::1"),
    ],
)
@pytest.mark.attack(
    by="a tenant",
    tries="have a name that its rules allow lead to a machine, a BMC, a service VM or a metadata service",
    stopped_by="the policy of all tenants, which is made from the configuration's own addresses",
)
def test_no_tenant_reaches_what_the_configuration_knows(address: str) -> None:
    assert denied(address)


def test_addresses_of_others_are_not_denied() -> None:
    for address in ("203.0.113.9", "10.30.0.1", "10.20.2.1", "2001:db8:22::1"):
        assert not denied(address)


@pytest.mark.parametrize(
    "network",
    [None, {}, {"node-cidrs": RANGES["node-cidrs"]}, {"bmc-cidrs": RANGES["bmc-cidrs"]}],
)
@pytest.mark.attack(
    by="a tenant",
    tries="reach a machine or a BMC whose network the configuration forgot",
    stopped_by="the configuration, which is refused while an address of them is in no closed range",
)
def test_a_configuration_that_leaves_machines_open_is_refused(network: Any) -> None:
    document = on_existing(*ADDRESSES, nodes=NODES)
    document["caas"].pop("network")
    if network is not None:
        document["caas"]["network"] = network
    missing = {"node-cidrs", "bmc-cidrs"} - set(network or ())
    assert [fault.path for fault in faults(document)] == [
        ("caas", "network", key) for key in ("node-cidrs", "bmc-cidrs") if key in missing
    ]


@pytest.mark.parametrize("case", yaml.safe_load(CASES.read_text()), ids=lambda case: case["name"])
@pytest.mark.attack(
    by="a tenant",
    tries="be let to names that mean the pod itself, the cluster, or the cloud's metadata service",
    stopped_by="the configuration, which refuses such names under egress.fqdns",
)
@pytest.mark.attack(
    by="anyone who reads the settings",
    tries="find the password of a BMC in its address, in a ConfigMap or in an error",
    stopped_by="the configuration, which refuses accounts in addresses and shows none of them",
)
@pytest.mark.attack(
    by="whoever proposes a configuration",
    tries="have a program run on the operator's machine, as an option of ssh in a machine's address",
    stopped_by="the configuration, which takes an IP address or a DNS name and nothing else",
)
@pytest.mark.attack(
    by="whoever may push to the registry",
    tries="put another image of the cluster's programs in the place of the one that was read",
    stopped_by="the configuration, which takes images of the programs by digest alone",
)
@pytest.mark.attack(
    by="whoever may make pods in a namespace of the cluster or of a tenant",
    tries="mount the keys of the machines there",
    stopped_by="the configuration, which refuses such namespaces for the cluster's programs",
)
def test_what_would_open_a_door_is_refused_where_it_stands(case: dict[str, Any]) -> None:
    start = on_existing("10.20.0.11") if case.get("existing") else base()
    for value in case["values"]:
        text = yaml.safe_dump(case["caas"]).replace("VALUE", json.dumps(value))
        found = faults(patched(start, {"caas": yaml.safe_load(text)}))
        assert case["refused"] in [render_path(fault.path) for fault in found], value
        assert "calvin" not in str(found)
