"""A Usernetes cluster as its API knows it: what to sync, the kubeconfig, invitations. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpuclusters.domain.usernetes_network import ApiAccess
from gpuclusters.host.node import ClusterNode, readdressed

HOST_IP = "usernetes/host-ip"
"""Label that upstream's entrypoint gives a node."""
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip-overwrite"
ANNOUNCED_IP = "flannel.alpha.coreos.com/public-ip"
"""What flannel on the node tells the others; it looks at the one above when it starts, and not again."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
LOOPBACK = "127.0.0.1"


def sync_faults(node: ClusterNode, host_ip: str) -> list[str]:
    """What `make sync-external-ip` would put right, in words."""
    found: list[str] = []
    if host_ip not in node.external_ips:
        found.append(f"the node has no ExternalIP {host_ip}: logs and exec do not reach it")
    if node.annotations.get(PUBLIC_IP) != host_ip:
        found.append(f"flannel does not know {host_ip}: pods of other nodes do not reach its pods")
    if node.has_taint(UNINITIALIZED):
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
    if access.through == "address":
        host = access.address or host_ip
        tls_name = "" if host in (LOOPBACK, node_name, host_ip) else node_name
        return readdressed(text, name=name, host=host, tls_name=tls_name)
    if access.through == "tunnel":
        port = str(access.local_port) if access.local_port else None
        return readdressed(text, name=name, host=LOOPBACK, port=port)
    return readdressed(text, name=name, host=LOOPBACK)


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
