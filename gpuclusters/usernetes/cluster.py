"""A Usernetes cluster as its API knows it: nodes, what to sync, the kubeconfig, invitations. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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


# Upstream's `make join-command` is not used: it writes a token that lives for a day into a file that every
# account of the host can read, and `kubeadm join --token` shows it in the process list. The file here is run
# by the same target, `make kubeadm-join`.
_LINE = re.compile(
    r"kubeadm join (?P<endpoint>\S+) --token (?P<token>[a-z0-9]{6}\.[a-z0-9]{16}) "
    r"--discovery-token-ca-cert-hash (?P<hash>sha256:[0-9a-f]{64})"
)
_FILE = """\
#!/bin/bash
set -eu -o pipefail
echo "{host_ip}  {node_name}" >/etc/hosts.u7s
grep -qxF "{host_ip}  {node_name}" /etc/hosts || cat /etc/hosts.u7s >>/etc/hosts
umask 077
config=$(mktemp -p /run)
trap 'rm -f "$config"' EXIT
cat >"$config" <<'END'
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: {endpoint}
    token: {token}
    caCertHashes:
      - {hash}
END
kubeadm join --config "$config"
"""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What `kubeadm token create --print-join-command` answered."""

    endpoint: str
    token: str = field(repr=False)
    ca_hash: str

    @property
    def token_id(self) -> str:
        """The part of the token that is no secret."""
        return self.token.partition(".")[0]


def parse_invitation(text: str) -> Invitation:
    """Read the command that kubeadm prints.

    Raises:
        ValueError: it is none; the text is not repeated, because it may hold a token.
    """
    found = _LINE.search(text)
    if found is None:
        raise ValueError("kubeadm printed no join command")
    return Invitation(found["endpoint"], found["token"], found["hash"])


def join_file(invitation: Invitation, *, control_ip: str, control_name: str) -> str:
    """What `make kubeadm-join` runs in the node. Secret.

    Args:
        invitation: of the control plane.
        control_ip: at which the control plane's host is reached.
        control_name: name of its node, which its certificate is for and no name server knows.
    """
    return _FILE.format(
        host_ip=control_ip,
        node_name=control_name,
        endpoint=invitation.endpoint,
        token=invitation.token,
        hash=invitation.ca_hash,
    )


def lifetime(hours: float) -> str:
    """As kubeadm wants a duration."""
    return f"{max(1, round(hours * 60))}m"
