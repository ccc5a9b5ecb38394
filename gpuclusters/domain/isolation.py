"""What isolates a tenant in a Kubernetes cluster, as plain objects.

Every function renders one object's `spec`, or part of it, from plain values. Nothing here talks to a cluster.
Sources: Cilium's policy language (an allow is a union, a deny always wins, a direction is closed as soon as
one rule selects it); Kubernetes' documentation of quotas, which count extended resources under
`requests.` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.domain.network import METADATA
from gpuclusters.domain.tenancy_resource import Egress

TENANT_LABEL = "gpu-clusters.dev/tenant"
"""Label of a tenant's namespaces. Policies select by it; tenants may not edit namespaces."""

GPU_SIZES_ANNOTATION = "gpu-clusters.dev/gpu-sizes"
"""Annotation of a tenant's namespace: how many GPUs one container may ask for, for example `1,2`."""

PULL_SECRET = "registry-credentials"  # noqa: S105 - a name
"""Secret of a tenant's namespace with its credentials of registries."""

# Never part of "the internet": private ranges, carrier NAT, link-local with its metadata service.
NOT_THE_INTERNET = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
)
FABRIC_MANAGER_PORT = 6666
KUBELET_PORTS = (10250, 10255)
BASELINE = "gpu-clusters-tenants"
"""Name of the cluster-wide network policy of all tenants."""
POLICY = "isolate"
"""Name of the network policy of one tenant."""


@dataclass(frozen=True, slots=True)
class Network:
    """The ranges of a cluster's own machines."""

    infrastructure_cidrs: tuple[str, ...] = ()
    """Machines and their management controllers: denied to every tenant."""
    storage_cidrs: tuple[str, ...] = ()
    """File servers: no part of the internet, but not denied either, because a denial outweighs the
    allowance of a tenant's own servers."""


Spec = dict[str, Any]


def namespace_annotations(gpu_sizes: Sequence[int]) -> dict[str, str]:
    """Annotations of a tenant's namespace; the pod policy reads them."""
    return {GPU_SIZES_ANNOTATION: ",".join(str(size) for size in sorted(gpu_sizes))}


def _ports(*numbers: tuple[int, str]) -> list[Spec]:
    return [
        {"ports": [{"port": str(number), "protocol": protocol} for number, protocol in numbers]}
    ]


def network_policy(egress: Egress, network: Network) -> list[Spec]:
    """The `specs` of a tenant's CiliumNetworkPolicy; each says in its description what it is for.

    One policy with all rules: Cilium judges it once, and no rule is ever in force without the others.
    """
    rules = network_rules(egress, network)
    return [{"description": name, **rule} for name, rule in rules.items()]


def network_rules(egress: Egress, network: Network) -> Mapping[str, Spec]:
    """What a tenant's pods may reach and be reached from, rule by name.

    `isolate` closes both directions except inside the namespace; the others open what the tenant needs.
    DNS always works, through Cilium's DNS proxy: without it name-based rules never match.
    """
    inside: Spec = {}  # in a CiliumNetworkPolicy this means: all pods of this namespace
    rules: dict[str, Spec] = {
        "isolate": {
            "endpointSelector": {},
            "ingress": [{"fromEndpoints": [inside]}],
            "egress": [{"toEndpoints": [inside]}],
        },
        "allow-dns": {
            "endpointSelector": {},
            "egress": [
                {
                    "toEndpoints": [
                        {
                            "matchLabels": {
                                "k8s:io.kubernetes.pod.namespace": "kube-system",
                                "k8s:k8s-app": "kube-dns",
                            }
                        }
                    ],
                    "toPorts": [
                        {
                            **_ports((53, "UDP"), (53, "TCP"))[0],
                            "rules": {"dns": [{"matchPattern": "*"}]},
                        }
                    ],
                }
            ],
        },
    }
    if egress.nfs_cidrs:
        rules["allow-nfs"] = {
            "endpointSelector": {},
            "egress": [
                {
                    "toCIDRSet": [{"cidr": cidr} for cidr in sorted(egress.nfs_cidrs)],
                    "toPorts": _ports((2049, "TCP"), (111, "TCP"), (111, "UDP")),
                }
            ],
        }
    if egress.internet:
        closed = sorted({*NOT_THE_INTERNET, *network.infrastructure_cidrs, *network.storage_cidrs})
        rules["allow-internet"] = {
            "endpointSelector": {},
            "egress": [{"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": closed}]}],
        }
    if egress.fqdns:
        rules["allow-names"] = {
            "endpointSelector": {},
            "egress": [
                {
                    "toFQDNs": [
                        {"matchPattern" if "*" in name else "matchName": name}
                        for name in sorted(egress.fqdns)
                    ],
                    "toPorts": _ports((443, "TCP")),
                }
            ],
        }
    if egress.api_server:
        rules["allow-api-server"] = {
            "endpointSelector": {},
            "egress": [{"toEntities": ["kube-apiserver"]}],
        }
    return rules


def baseline(network: Network) -> Spec:
    """The CiliumClusterwideNetworkPolicy of every tenant's pods, older than any tenant.

    It closes both directions, so that an agent that has not yet heard of a new tenant's own policies
    lets nothing through instead of everything. And it denies, which no allowance can widen, every
    node, kubelets, metadata services, BMC networks, and above all the fabric manager, whose API
    knows neither authentication nor TLS.
    """
    cidrs = sorted({str(METADATA), *network.infrastructure_cidrs})
    return {
        "endpointSelector": {
            "matchExpressions": [
                {
                    "key": f"k8s:io.cilium.k8s.namespace.labels.{TENANT_LABEL}",
                    "operator": "Exists",
                }
            ]
        },
        # An empty rule allows nothing; that there is one closes the direction.
        "ingress": [{}],
        "egress": [{}],
        "egressDeny": [
            {"toEntities": ["host", "remote-node"]},
            {"toCIDRSet": [{"cidr": cidr} for cidr in cidrs]},
            {
                "toEntities": ["all"],
                "toPorts": _ports(
                    (FABRIC_MANAGER_PORT, "TCP"), *((port, "TCP") for port in KUBELET_PORTS)
                ),
            },
        ],
    }
