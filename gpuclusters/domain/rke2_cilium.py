"""Cilium as RKE2 installs it: the values of its chart, set before the first server starts.

The CNI of a running cluster cannot change, and values that come later roll every agent, so all of them are
written with the first server. External IPs of services are not among them: from Cilium 1.19, which RKE2 has
since v1.32.12, they cannot be switched off (`externalIPs.enabled` is gone), so the API server and the
admission policy refuse them. Sources: RKE2's networking documentation (HelmChartConfig `rke2-cilium`),
Cilium's documentation of Kata Containers and of kube-proxy replacement, cilium#15437.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from gpuclusters.domain.rke2 import API_PORT, MANIFESTS

PATH = f"{MANIFESTS}/rke2-cilium-config.yaml"


class PolicyEnforcement(StrEnum):
    """When Cilium closes an endpoint that no policy selects."""

    DEFAULT = "default"
    """Open until a policy selects it, per direction."""
    ALWAYS = "always"
    """Closed until a policy opens it; system pods need policies too, or nothing starts."""


class Encryption(StrEnum):
    """Whether traffic between nodes is encrypted."""

    NONE = "none"
    WIREGUARD = "wireguard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cilium:
    """What we decide of Cilium; the rest is the chart's default."""

    kube_proxy_replacement: bool = True
    socket_lb_host_namespace_only: bool = True
    """Translate services for sockets of the host alone: it cannot see those inside a VM, which are
    translated at the VM's interface instead."""
    dns_proxy: bool = True
    policy_enforcement: PolicyEnforcement = PolicyEnforcement.DEFAULT
    encryption: Encryption = Encryption.NONE
    mtu: int | None = None
    host_firewall: bool = False
    ingress_controller: bool = False
    """Serve Ingresses of the class cilium."""


def values(cilium: Cilium) -> dict[str, Any]:
    """The chart's values."""
    chosen: dict[str, Any] = {
        "kubeProxyReplacement": cilium.kube_proxy_replacement,
        "policyEnforcementMode": cilium.policy_enforcement.value,
        # The interface of pods in a VM is not the host's: translation at sockets must leave them alone.
        "socketLB": {"hostNamespaceOnly": cilium.socket_lb_host_namespace_only},
        # Its DNS proxy has no switch of its own.
        "l7Proxy": cilium.dns_proxy,
        # A name that a tenant may not ask for: resolvers go on with the next of their search domains, which
        # not all of them do after "refused".
        "dnsProxy": {"dnsRejectResponseCode": "nameError"},
        # Flows name every tenant's peers; nobody gets to see them through an open port.
        "hubble": {"enabled": False, "relay": {"enabled": False}, "ui": {"enabled": False}},
        # What the readiness of a tenancy is read from: CiliumIsUp on every node.
        "operator": {"setNodeNetworkStatus": True},
        "hostFirewall": {"enabled": cilium.host_firewall},
    }
    if cilium.kube_proxy_replacement:
        # Without kube-proxy the service of the API does not work yet when Cilium starts. On every RKE2
        # node something answers at localhost: the API itself, or the agent's load balancer.
        chosen |= {"k8sServiceHost": "localhost", "k8sServicePort": str(API_PORT)}
    if cilium.encryption is Encryption.WIREGUARD:
        chosen["encryption"] = {"enabled": True, "type": "wireguard"}
    if cilium.ingress_controller:
        chosen["ingressController"] = {"enabled": True}
    if cilium.mtu is not None:
        chosen["MTU"] = cilium.mtu
    return chosen


def helm_chart_config(cilium: Cilium) -> str:
    """The manifest that a server reads beside its own chart."""
    return chart_config("rke2-cilium", values(cilium))


def chart_config(chart: str, chosen: Mapping[str, Any]) -> str:
    """A HelmChartConfig for one of RKE2's own charts."""
    body = {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": {"name": chart, "namespace": "kube-system"},
        "spec": {"valuesContent": yaml.safe_dump(dict(chosen), sort_keys=True)},
    }
    return str(yaml.dump(body, Dumper=_Blocks, sort_keys=False))


class _Blocks(yaml.SafeDumper):
    """Texts of several lines as blocks, for who reads the file on the host."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _text)
