"""What a rootless node is asked for, and where its parts lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.control_plane import NodeSpec

PACKAGES = ("rootlesskit", "slirp4netns", "uidmap", "libslirp0", "libsubid4")
"""Debian's packages with the programs that an account makes its namespaces with."""
NODE_PACKAGES = ("iptables", "libxtables12", "libmnl0", "libnftnl11")
"""Debian's packages with the program that leads packets of the node's pods."""

LIBEXEC = "/usr/local/libexec/usernetes-node"
"""On the host: programs that only the node has on its PATH."""

DATA = "/srv/usernetes-node"
"""On the host: what the node keeps over its restarts, as volumes of its container would."""

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
)  # fmt: skip


class RootlessNodeError(RuntimeError):
    """A rootless node cannot be started or asked; one sentence for the user."""


@dataclass(frozen=True, slots=True)
class RootlessSpec:
    """One rootless node on a host of its own.

    `control_plane` is the folder of the lab whose API server it joins. Of `node`, name, labels and taints
    count: capacity is what the machine has. `images` are OCI archives that the node has from the start.
    `layers` are folders whose files lie over those of the host, such as a driver; `devices` are character
    devices of the host's /dev by name: major and minor number. `account` of the host owns everything.
    """

    control_plane: Path
    node: NodeSpec
    images: tuple[Path, ...] = ()
    layers: tuple[Path, ...] = ()
    devices: tuple[tuple[str, int, int], ...] = ()
    account: str = "usernetes"

    @property
    def name(self) -> str:
        return self.node.name
