"""A Usernetes cluster as its API knows it: nodes, what has to be synced, the kubeconfig. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.domain.usernetes_network import ApiAccess

HOST_IP = "usernetes/host-ip"
"""Label that upstream's entrypoint gives a node."""
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip-overwrite"
ANNOUNCED_IP = "flannel.alpha.coreos.com/public-ip"
"""What flannel on the node tells the others; it looks at the one above when it starts, and not again."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
DRAINED = "gpu-clusters.dev/drained-for"
"""Annotation of a node that was closed by us, so that a later run knows to open it again."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node."""

    ready: bool
    reason: str
    """What its condition Ready says."""
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: frozenset[str]
    """Their keys."""
    external_ips: tuple[str, ...]
    unschedulable: bool

    @property
    def drained_for(self) -> str:
        """Why we closed it; empty if we did not."""
        return self.annotations.get(DRAINED, "")


def parse_node(text: str) -> ClusterNode | None:
    """What `kubectl get node NAME --ignore-not-found -o json` printed; None if there is no such node.

    Raises:
        ValueError: it is no JSON.
        KeyError: it is no Node.
    """
    if not text.strip():
        return None
    body = json.loads(text)
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    ready: Mapping[str, Any] = next(
        (one for one in status.get("conditions", ()) if one["type"] == "Ready"), {}
    )
    addresses = status.get("addresses", ())
    return ClusterNode(
        ready=ready.get("status") == "True",
        reason=str(ready.get("message", "")),
        version=status.get("nodeInfo", {}).get("kubeletVersion", ""),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        taints=frozenset(one["key"] for one in spec.get("taints") or ()),
        external_ips=tuple(one["address"] for one in addresses if one["type"] == "ExternalIP"),
        unschedulable=bool(spec.get("unschedulable")),
    )


def sync_faults(node: ClusterNode, host_ip: str) -> list[str]:
    """What `make sync-external-ip` would put right, in words."""
    found: list[str] = []
    if host_ip not in node.external_ips:
        found.append(f"the node has no ExternalIP {host_ip}: logs and exec do not reach it")
    if node.annotations.get(PUBLIC_IP) != host_ip:
        found.append(f"flannel does not know {host_ip}: pods of other nodes do not reach its pods")
    if UNINITIALIZED in node.taints:
        found.append(f"the node has the taint {UNINITIALIZED}: no pod starts there")
    return found


def flannel_fault(node: ClusterNode, host_ip: str) -> str | None:
    """Whether flannel started there before it could know the host's address; None if it is right."""
    announced = node.annotations.get(ANNOUNCED_IP, host_ip)
    if announced == host_ip:
        return None
    return f"flannel there announces {announced} and not {host_ip}: it started before it was told"


def kubeconfig(text: str, access: ApiAccess, *, name: str, node_name: str, host_ip: str) -> str:
    """The admin kubeconfig as others can use it.

    The certificate of the API server is for 127.0.0.1, the node's name and the host's address. With another
    address (one that only the outside knows) the client is told to look for the node's name in it.

    Args:
        text: `/etc/kubernetes/admin.conf` of the control plane, which names the node.
        access: from where the API is reached.
        name: of cluster, context and user.
        node_name: of the control plane.
        host_ip: of the control plane's host.

    Raises:
        ValueError: not a kubeconfig with exactly one cluster.
    """
    body = yaml.safe_load(text)
    try:
        (cluster,), (user,), (context,) = body["clusters"], body["users"], body["contexts"]
        stated: dict[str, Any] = cluster["cluster"]
        scheme, _, place = str(stated["server"]).partition("://")
        host, _, port = place.rstrip("/").partition(":")
        if access.through == "address":
            host = access.address or host_ip
            if host not in (LOOPBACK, node_name, host_ip):
                stated["tls-server-name"] = node_name
        elif access.through == "tunnel":
            host, port = LOOPBACK, str(access.local_port or port)
        elif host == node_name:
            host = LOOPBACK
        stated["server"] = f"{scheme}://{host}:{port}"
        cluster["name"] = user["name"] = context["name"] = name
        context["context"] = {**context["context"], "cluster": name, "user": name}
        body["current-context"] = name
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("it is not a kubeconfig with one cluster") from error
    return yaml.safe_dump(body, sort_keys=False)
