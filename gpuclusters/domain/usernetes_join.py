"""How a worker is let into a Usernetes cluster: a token of its own, in a file, for as long as it joins. Pure.

Upstream's `make join-command` is not used: it writes a token that lives for a day into a file that every
account of the host can read, and `kubeadm join --token …` shows it in the process list. The file here is run
by the same target, `make kubeadm-join`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
