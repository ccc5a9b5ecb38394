"""What tenants and the cluster's own programs can reach, asked of the rendered policies as Cilium would."""

import ipaddress
from collections.abc import Iterator
from typing import Any

from gpuclusters.tenancy.isolation import Network, baseline, network_policy
from gpuclusters.tenancy.model import Egress, TenancySpec
from gpuclusters.tenancy.objects import home, inside
from gpuclusters.tenancy.programs import Place, Ports, Program, Reach, network_policies

NETWORK = Network(infrastructure_cidrs=("192.0.2.0/24",))


def network_rules(egress: Egress) -> dict[str, dict[str, Any]]:
    """A tenant's rules by what they are for."""
    return {one["description"]: one for one in network_policy(egress, NETWORK, "tenant-acme")}


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
    policies = network_rules(Egress())
    assert set(policies) == {"isolate", "allow-dns", "deny-api-server"}
    assert rules(policies, "ingress") == [{"fromEndpoints": [{}]}]
    assert not open_cidr(policies, "203.0.113.9")


def test_dns_goes_through_the_proxy_so_that_rules_by_name_can_match() -> None:
    policies = network_rules(Egress(fqdns=("example.org", "*.example.org")))
    (port,) = policies["allow-dns"]["egress"][0]["toPorts"]
    assert {"matchName": "example.org"} in port["rules"]["dns"]
    assert {p["protocol"] for p in port["ports"]} == {"UDP", "TCP"}
    assert policies["allow-names"]["egress"][0]["toFQDNs"] == [
        {"matchPattern": "*.example.org"},
        {"matchName": "example.org"},
    ]


def test_the_internet_ends_at_private_ranges_metadata_and_our_machines() -> None:
    policies = network_rules(Egress(internet=True))
    private = ("10.1.2.3", "172.20.0.1", "192.168.7.7", "100.100.0.1")
    asked = ("203.0.113.9", *private, "169.254.169.254", "192.0.2.77")
    assert [address for address in asked if open_cidr(policies, address)] == ["203.0.113.9"]


def test_nfs_opens_the_storage_range_on_nfs_ports_only() -> None:
    policies = network_rules(Egress(nfs_cidrs=("10.9.0.0/24",)))
    (rule,) = policies["allow-nfs"]["egress"]
    assert rule["toCIDRSet"] == [{"cidr": "10.9.0.0/24"}]
    assert {p["port"] for p in rule["toPorts"][0]["ports"]} == {"2049", "111"}


def test_no_tenant_reaches_the_fabric_manager_or_a_kubelet_whatever_its_own_policies_allow() -> (
    None
):
    spec = baseline(NETWORK)
    ports = {
        port["port"]
        for rule in spec["egressDeny"]
        for entry in rule.get("toPorts", [])
        for port in entry["ports"]
    }
    assert {"6666", "10250"} <= ports
    cidrs = {e["cidr"] for rule in spec["egressDeny"] for e in rule.get("toCIDRSet", [])}
    assert cidrs == {
        *("192.0.2.0/24", "127.0.0.0/8", "169.254.0.0/16"),
        *("::1/128", "fe80::/10", "fc00::/7", "2002::/16"),
        *("::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),
    }


def test_an_agent_that_knows_only_the_policy_of_all_tenants_lets_nothing_through() -> None:
    spec = baseline(NETWORK)
    (expression,) = spec["endpointSelector"]["matchExpressions"]
    assert expression["key"].endswith("gpu-clusters.dev/tenant")
    # One empty rule in a direction closes it, unless it is told not to.
    assert spec["ingress"] == spec["egress"] == [{}]
    assert "enableDefaultDeny" not in spec


TENANCY = TenancySpec.model_validate(
    {
        "tenant": "acme",
        "namespace": "tenant-acme",
        "gpus": 4,
        "sizes": [4, 1],
        "podSecurity": {"version": "v1.36"},
        "quota": {"hard": {"requests.nvidia.com/pgpu": "4", "pods": "10"}},
        "limits": [{"type": "Container", "default": {"cpu": "1"}}],
    }
)


def test_pod_security_is_pinned_to_one_version_in_every_mode() -> None:
    metadata = home(TENANCY).body["metadata"]
    labels = metadata["labels"]
    assert labels["gpu-clusters.dev/tenant"] == "acme"
    for mode in ("enforce", "audit", "warn"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"
        assert labels[f"pod-security.kubernetes.io/{mode}-version"] == "v1.36"
    assert metadata["annotations"] == {
        "gpu-clusters.dev/gpu-sizes": "1,4",
        "gpu-clusters.dev/images": "",
    }


def test_everything_of_a_tenant_is_in_its_namespace_and_says_whose_it_is() -> None:
    made = {f"{child.kind.kind} {child.name}": child.body for child in inside(TENANCY, NETWORK)}
    assert list(made) == [
        "ResourceQuota tenant",
        "LimitRange tenant",
        "ServiceAccount default",
        "CiliumNetworkPolicy isolate",
    ]
    for body in made.values():
        assert body["metadata"]["namespace"] == "tenant-acme"
        assert body["metadata"]["labels"]["gpu-clusters.dev/tenant"] == "acme"
    assert made["ServiceAccount default"]["automountServiceAccountToken"] is False
    assert made["ServiceAccount default"]["imagePullSecrets"] == []
    assert made["LimitRange tenant"]["spec"]["limits"] == [
        {"type": "Container", "default": {"cpu": "1"}}
    ]


def test_a_tenant_that_is_to_go_may_start_no_pod() -> None:
    (quota, *_) = inside(TENANCY, NETWORK, closing=True)
    assert quota.body["spec"]["hard"] == {"requests.nvidia.com/pgpu": "4", "pods": "0"}


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
