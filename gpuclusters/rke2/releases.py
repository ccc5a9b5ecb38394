"""RKE2 as a release and as places on a host: versions, what may follow what, paths, ports.

Sources: RKE2's documentation (install, server configuration, upgrades, hardening), its install script and
systemd units. What each release brings is a dated table: see `rke2_matrix`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import total_ordering

_VERSION = re.compile(r"v1\.([0-9]{1,3})\.([0-9]{1,3})\+rke2r([0-9]{1,3})")

SUPERVISOR_PORT = 9345
API_PORT = 6443

CONFIG = "/etc/rancher/rke2/config.yaml.d/50-gpu-clusters.yaml"
"""Read after `config.yaml`; what is said in both is taken from here."""
TOKENS = "/etc/rancher/rke2/config.yaml.d/40-gpu-clusters-tokens.yaml"
"""Server and agent token, readable by root alone and apart from everything that may be shown."""
REGISTRIES = "/etc/rancher/rke2/registries.yaml"
MANIFESTS = "/var/lib/rancher/rke2/server/manifests"
"""Applied by a server when it starts and whenever a file changes."""
KUBELET_DROP_IN = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50-gpu-clusters.conf"
CONTAINERD_CONFIG = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
"""Written anew by RKE2 at every start."""
CONTAINERD_DROP_INS = "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d"
CONTAINERD_DROP_IN = f"{CONTAINERD_DROP_INS}/50-gpu-clusters.toml"
"""Imported by the file that RKE2 generates, from the releases on that `rke2_matrix.drop_ins` knows."""
CONTAINERD_TEMPLATES = tuple(
    f"/var/lib/rancher/rke2/agent/etc/containerd/{name}.toml.tmpl"
    for name in ("config-v3", "config")
)
"""Takes the place of all that RKE2 would write, unless it says `{{ template "base" . }}`."""
CONTAINERD_SOCKET = "/run/k3s/containerd/containerd.sock"
ENVIRONMENT = "/etc/default"
"""Where the units read `rke2-server` and `rke2-agent` from; proxies are set there."""
NETWORK_MANAGER = "/etc/NetworkManager/conf.d/50-gpu-clusters-rke2.conf"
INOTIFY = "/etc/sysctl.d/90-gpu-clusters-rke2.conf"


class Role(StrEnum):
    """What a host is to its cluster."""

    SERVER = "server"
    AGENT = "agent"

    @property
    def unit(self) -> str:
        return f"rke2-{self}.service"


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A release of RKE2: `v1.35.7+rke2r1`."""

    minor: int
    patch: int
    revision: int

    def __str__(self) -> str:
        return f"{self.kubernetes}+rke2r{self.revision}"

    def __lt__(self, other: Version) -> bool:
        return (self.minor, self.patch, self.revision) < (other.minor, other.patch, other.revision)

    @property
    def kubernetes(self) -> str:
        """The version of Kubernetes in it, as a kubelet reports it but for what follows the `+`."""
        return f"v1.{self.minor}.{self.patch}"


def parse_version(text: str) -> Version:
    """A pinned release; ValueError for a channel (`stable`) or a version of Kubernetes alone."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError("write a release of RKE2 with all its parts, like v1.35.7+rke2r1")
    minor, patch, revision = (int(part) for part in match.groups())
    return Version(minor, patch, revision)


def step_problem(installed: Version, wanted: Version) -> str | None:
    """Why a host must not go from one release to the other; None if it may.

    Kubernetes supports upgrades by one minor at a time and no downgrades; RKE2 enforces neither (its
    upgrade documentation), and etcd's data of a newer release is not readable by an older one.
    """
    if wanted.minor < installed.minor or (wanted.minor == installed.minor and wanted < installed):
        return (
            f"{installed} is installed and {wanted} is older; RKE2 has no downgrade: restore an etcd "
            "snapshot on new servers instead"
        )
    if wanted.minor > installed.minor + 1:
        between = f"v1.{installed.minor + 1}"
        return (
            f"{installed} is installed and {wanted} skips a minor; go to the newest {between} first, "
            "then on"
        )
    return None


def skew_problem(server: Version, agent: Version) -> str | None:
    """Why an agent of this release must not run with a server of that one; None if it may.

    A kubelet is never newer than its API server and at most three minors older (Kubernetes' version
    skew policy).
    """
    if agent.minor > server.minor:
        return (
            f"a server still runs {server}, which is older than {agent}: servers are upgraded first"
        )
    if agent.minor < server.minor - 3:
        return f"{agent} is more than three minors older than its server's {server}"
    return None
