"""What the programs of a rootless node are told. All paths are those inside of the node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.control_plane import NodeSpec
from lab.control_plane.ports import LOOPBACK
from lab.images.names import PAUSE
from lab.kubeconfig import of_node
from lab.nodes import OWN_CAPACITY
from lab.nodes import configuration as rootful
from lab.nodes.folder import RealNodeFolder

SLIRP_HOST = "10.0.2.2"
"""Where slirp4netns shows the loopback of the machine underneath."""
FOLDER = RealNodeFolder(Path("/etc/kubernetes"))
PLUGINS = "/opt/cni/bin"
RUNC = "/usr/local/bin/runc"

CONTAINERD = f"""\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Root of an account may not lower the score of a process.
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{PLUGINS}"
  conf_dir = "/etc/cni/net.d"
  use_internal_loopback = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{RUNC}"
  SystemdCgroup = false
"""
"""As kind's image has it, of version 2, without systemd: the unit of GPUs lays NVIDIA's runtime over it."""


def kubelet(node: NodeSpec, port: int) -> str:
    """The kubelet's configuration (JSON, which is YAML)."""
    node = replace(node, capacity=OWN_CAPACITY, allocatable=OWN_CAPACITY)
    document: dict[str, Any] = json.loads(rootful.kubelet(FOLDER, node, ""))
    # Nothing leads from this node's network to services.
    document.pop("clusterDNS", None)
    document |= {
        "featureGates": {"KubeletInUserNamespace": True},
        # The same number outside, where rootlesskit listens for it.
        "port": port,
    }
    return json.dumps(document, indent=2) + "\n"


def kubeconfig(port: int) -> str:
    """The kubelet's kubeconfig: the API server of the machine underneath, by the name in its certificate."""
    pki = FOLDER.pki
    return of_node(
        f"https://{SLIRP_HOST}:{port}",
        pki / "ca.crt",
        pki / "client.crt",
        **{"tls-server-name": LOOPBACK},
    )


def network(pod_range: str) -> str:
    """The CNI configuration: the bridge that other real nodes have, without ways to them."""
    return rootful.network(pod_range)
