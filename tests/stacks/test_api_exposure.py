"""How a caas stack exposes its API: what stands before it, who ends TLS, and where the key is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.components.recorder import Recorder
from tests.fixtures.authority import Authority
from tests.stacks import declaring

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINjnSvjiVc3NyLhiZ3U1zwicC37SnCP8s6oO7+zrF6YO"
MANAGED = {"source": "cert-manager", "issuer": "letsencrypt"}
HOST = "api.corp.test"
INGRESS = {"kind": "ingress", "ingress-class": "nginx", "host": HOST, "certificate": MANAGED}
ROUTES = ("Ingress", "Gateway", "HTTPRoute")


def stack(**api: Any) -> Recorder:
    """The stack on one machine and in a cluster that exist."""
    section = {
        "name": "prod",
        "platform": "supermicro-hgx-h100",
        "hosts": {
            "source": "existing",
            "user": "ops",
            "machines": [{"name": "hgx-01", "address": "10.20.0.11", "host-key": HOST_KEY}],
        },
        "kubernetes": {"source": "existing"},
        "network": {"node-cidrs": ["10.20.0.0/24"], "bmc-cidrs": ["10.21.0.0/24"]},
        "nodes": [{"name": "hgx-01"}],
        "partition-layout": [8],
        "tenants": [],
        "leases": {"recycle-policy": "reset-only"},
        "programs": {"image": f"registry.corp.test/gpu-clusters@sha256:{'b' * 64}"},
        "service-vm": {"image": {"path": "/srv/vm.qcow2", "sha256": "a" * 64}},
        "api": {"issuer": "https://id.corp.test", **api},
    }
    return declaring.declared({"cluster-type": "caas", "caas": section}, preview=False)


def one(seen: Recorder, kind: str, name: str = "api") -> dict[str, Any]:
    """The object of this kind and name, which there is once."""
    (found,) = [
        resource.inputs
        for resource in seen.seen
        if resource.inputs.get("kind") == kind and resource.inputs["metadata"]["name"] == name
    ]
    return found


def kinds(seen: Recorder) -> set[str]:
    return {str(resource.inputs.get("kind")) for resource in seen.seen}


def settings(seen: Recorder) -> dict[str, Any]:
    """What the API is told."""
    found = next(
        resource.inputs["data"]["settings.yaml"]
        for resource in seen.seen
        if resource.inputs.get("kind") == "ConfigMap"
        and "settings.yaml" in resource.inputs.get("data", {})
    )
    return dict(yaml.safe_load(found)["api"])


def ports(seen: Recorder) -> Any:
    return one(seen, "Service")["spec"]["ports"]


def outside(seen: Recorder) -> list[str]:
    """Networks outside of the cluster that reach the API's port for tenants, and that alone."""
    (policy,) = [
        resource.inputs["spec"] for resource in seen.seen if resource.name == "program-network-api"
    ]
    rules = [rule for rule in policy["ingress"] if "fromCIDRSet" in rule]
    for rule in rules:
        assert rule["toPorts"] == [{"ports": [{"port": "8080", "protocol": "TCP"}]}]
    return [one["cidr"] for rule in rules for one in rule["fromCIDRSet"]]


def tls_of(seen: Recorder) -> list[str]:
    """Secrets that the API's pods mount as their certificate."""
    volumes = one(seen, "Deployment")["spec"]["template"]["spec"]["volumes"]
    return [volume["secret"]["secretName"] for volume in volumes if volume["name"] == "tls"]


@pytest.mark.parametrize(
    ("ingress_class", "redirect"),
    [
        ("nginx", ("nginx.ingress.kubernetes.io/force-ssl-redirect", "true")),
        ("cilium", ("ingress.cilium.io/force-https", "enabled")),
        ("traefik", ("traefik.ingress.kubernetes.io/router.entrypoints", "websecure")),
    ],
)
def test_an_ingress_ends_tls_and_leads_from_http_to_https(
    ingress_class: str, redirect: tuple[str, str]
) -> None:
    seen = stack(
        exposure={
            **INGRESS,
            "ingress-class": ingress_class,
            "annotations": {"external-dns.corp.test/ttl": "60"},
        }
    )
    made = one(seen, "Ingress")
    assert made["spec"]["ingressClassName"] == ingress_class
    assert made["spec"]["tls"] == [{"hosts": [HOST], "secretName": "api-tls"}]
    (rule,) = made["spec"]["rules"]
    assert rule["host"] == HOST
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/", "Prefix")
    assert path["backend"]["service"] == {"name": "api", "port": {"number": 80}}
    annotations = made["metadata"]["annotations"]
    assert annotations[redirect[0]] == redirect[1]
    assert annotations["external-dns.corp.test/ttl"] == "60"
    asked = one(seen, "Certificate", "api-tls")
    assert asked["metadata"]["namespace"] == made["metadata"]["namespace"]
    assert asked["spec"]["dnsNames"] == [HOST]
    assert asked["spec"]["secretName"] == "api-tls"
    assert asked["spec"]["issuerRef"] == {
        "group": "cert-manager.io",
        "kind": "ClusterIssuer",
        "name": "letsencrypt",
    }
    assert [port["port"] for port in ports(seen)] == [80]
    assert tls_of(seen) == []
    # Its controller is a pod, or on a node.
    assert outside(seen) == []


def test_behind_an_ingress_pods_and_nodes_are_the_proxies_unless_it_is_said_otherwise() -> None:
    derived = settings(stack(exposure=INGRESS))
    assert derived["proxies"] == ["10.244.0.0/16", "10.20.0.0/24"]
    said = settings(stack(exposure=INGRESS, proxies=["10.9.0.0/16"]))
    assert said["proxies"] == ["10.9.0.0/16"]
    balancer = {"kind": "load-balancer", "host": HOST, "certificate": MANAGED}
    assert settings(stack(exposure=balancer))["proxies"] == []


def test_a_gateway_ends_tls_and_leads_from_http_to_https() -> None:
    seen = stack(
        exposure={
            "kind": "gateway",
            "gateway-class": "cilium",
            "host": HOST,
            "certificate": {**MANAGED, "issuer-kind": "Issuer"},
        }
    )
    spec = one(seen, "Gateway")["spec"]
    assert spec["gatewayClassName"] == "cilium"
    plain, secure = spec["listeners"]
    assert (plain["protocol"], plain["port"]) == ("HTTP", 80)
    assert (secure["protocol"], secure["port"], secure["hostname"]) == ("HTTPS", 443, HOST)
    assert secure["tls"]["mode"] == "Terminate"
    assert secure["tls"]["certificateRefs"] == [{"kind": "Secret", "name": "api-tls"}]
    # No other namespace may hang its routes there.
    assert {one["allowedRoutes"]["namespaces"]["from"] for one in spec["listeners"]} == {"Same"}
    route = one(seen, "HTTPRoute")["spec"]
    assert route["parentRefs"] == [{"name": "api", "sectionName": "https"}]
    (rule,) = route["rules"]
    assert rule["backendRefs"] == [{"name": "api", "port": 80}]
    redirect = one(seen, "HTTPRoute", "api-to-https")["spec"]
    assert redirect["parentRefs"] == [{"name": "api", "sectionName": "http"}]
    (rule,) = redirect["rules"]
    assert rule["filters"][0]["requestRedirect"] == {"scheme": "https", "statusCode": 301}
    assert "backendRefs" not in rule
    assert one(seen, "Certificate", "api-tls")["spec"]["issuerRef"]["kind"] == "Issuer"


def test_behind_a_load_balancer_the_api_ends_tls_with_the_given_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = Authority(tmp_path).pair([HOST])
    monkeypatch.setitem(declaring.SECRETS, "gpu-clusters:api-private-key", key)
    seen = stack(
        exposure={
            "kind": "load-balancer",
            "host": HOST,
            "certificate": {"source": "given", "chain": chain},
            "annotations": {"lbipam.cilium.io/ips": "203.0.113.7"},
        }
    )
    service = one(seen, "Service")
    assert service["spec"]["type"] == "LoadBalancer"
    # Else every client has the address of a node.
    assert service["spec"]["externalTrafficPolicy"] == "Local"
    assert service["metadata"]["annotations"]["lbipam.cilium.io/ips"] == "203.0.113.7"
    assert [(port["name"], port["port"]) for port in ports(seen)] == [("https", 443)]
    assert tls_of(seen) == ["api-tls"]
    assert outside(seen) == ["0.0.0.0/0", "::/0"]
    assert kinds(seen).isdisjoint(ROUTES)
    secret = one(seen, "Secret", "api-tls")
    assert secret["type"] == "kubernetes.io/tls"
    # The key is in this one object and nowhere else.
    holders = [
        resource
        for resource in seen.seen
        if key.splitlines()[1] in json.dumps(resource.inputs, default=str)
    ]
    assert [holder.inputs["metadata"]["name"] for holder in holders] == ["api-tls"]


def test_where_something_else_ends_tls_nothing_is_declared_for_it() -> None:
    seen = stack(exposure={"kind": "external"}, proxies=["10.9.0.0/16"])
    assert kinds(seen).isdisjoint({*ROUTES, "Certificate"})
    assert [(port["name"], port["port"]) for port in ports(seen)] == [("http", 80)]
    assert "type" not in one(seen, "Service")["spec"]
    assert tls_of(seen) == []
    assert settings(seen)["proxies"] == ["10.9.0.0/16"]
    assert outside(seen) == ["10.9.0.0/16"]


def test_operators_are_who_the_configuration_says_and_otherwise_nobody() -> None:
    said = settings(stack(exposure=INGRESS, **{"operator-group": "gpu-operators"}))
    assert said["operatorGroup"] == "gpu-operators"
    assert "operatorGroup" not in settings(stack(exposure=INGRESS))
