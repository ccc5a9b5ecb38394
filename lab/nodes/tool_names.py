"""Which programs real nodes need."""

from __future__ import annotations

from lab.nodes import cilium, dns, proxy
from lab.nodes.model import CILIUM

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
    *proxy.TOOLS, *dns.TOOLS,
)  # fmt: skip
"""Every node."""


def tools_for(network: str) -> tuple[str, ...]:
    """The programs of nodes whose pods have this network."""
    return (*TOOLS, *cilium.TOOLS) if network == CILIUM else TOOLS
