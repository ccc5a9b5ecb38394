"""How a rootless node becomes part of the lab's cluster."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.files import write_atomic
from lab.nodes import node_files, objects
from lab.nodes.folder import RealNodeFolder
from tests.rootless.node import configuration
from tests.rootless.node.model import RootlessNodeError, RootlessSpec

_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_FILES = ("ca.crt", "client.crt", "client.key", "serving.crt", "serving.key")
_SECONDS = 300.0
REQUEST_SECONDS = 60.0
"""For one answer of the API server, beside a node that starts."""
_POLL_SECONDS = 0.1


def write(spec: RootlessSpec, data: Path, port: int, api_port: int) -> None:
    """The files that containerd and the kubelet start from, with certificates by the lab's authority."""
    for folder in ("var-lib", "var-log", "etc/cdi", "etc/nvidia-container-runtime", "etc/cni/net.d",
                   "etc/kubernetes/pki", "etc/containerd"):  # fmt: skip
        (data / folder).mkdir(parents=True, exist_ok=True)
    issued = RealNodeFolder(data / "issued" / spec.name)
    # The API server asks the kubelet at the port that rootlesskit publishes.
    node_files.issue(Layout.of(spec.control_plane), issued, LOOPBACK)
    for name in _FILES:
        (issued.pki / name).replace(data / "etc/kubernetes/pki" / name)
    kubernetes = data / "etc/kubernetes"
    (kubernetes / "kubelet.yaml").write_text(configuration.kubelet(spec.node, port))
    (kubernetes / "kubelet.conf").write_text(configuration.kubeconfig(api_port))
    (data / "etc/containerd/config.toml").write_text(configuration.CONTAINERD)
    (data / "name").write_text(f"{spec.name}\n")
    (data / "api-server").write_text(f"{configuration.SLIRP_HOST} {api_port}\n")


def join(api: KubeApi, spec: RootlessSpec, networks: Path, kubelet_log: Path) -> None:
    """Give the node its address, and its pods a network; returns when it is Ready.

    The kubelet cannot say by which address it is reached: within its namespaces it has another. So it says
    that a cloud will, as in Usernetes, and this is the cloud.

    Raises:
        RootlessNodeError: it is not in time.
    """
    objects.admit_api_server(api)
    deadline = time.monotonic() + _SECONDS
    while True:
        # The control plane may be at its limits.
        with contextlib.suppress(UnavailableError):
            node = objects.read(api, spec.name)
            if (
                node is not None
                and node["spec"].get("podCIDR")
                and _placed(api, spec, node, networks)
            ):
                return
        if time.monotonic() > deadline:
            raise RootlessNodeError(
                f"the rootless node {spec.name} was not Ready within {_SECONDS:.0f} s; see {kubelet_log}"
            )
        time.sleep(_POLL_SECONDS)


def _placed(api: KubeApi, spec: RootlessSpec, node: dict[str, Any], networks: Path) -> bool:
    name = spec.name
    text = configuration.network(node["spec"]["podCIDR"])
    write_atomic(networks / "10-lab.conflist", text.encode())
    addresses = [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}]
    if node["status"].get("addresses") != addresses:
        path, body = f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses}}
        api.request("PATCH", path, body, "application/merge-patch+json")
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    if _UNINITIALIZED in taints:
        place = f"/spec/taints/{taints.index(_UNINITIALIZED)}"
        # Refused when the taints are others by now; then it is done at the next look.
        patch = [
            {"op": "test", "path": f"{place}/key", "value": _UNINITIALIZED},
            {"op": "remove", "path": place},
        ]
        api.request("PATCH", f"/api/v1/nodes/{name}", patch, "application/json-patch+json")
        labelled = {"name": name, "labels": dict(spec.node.labels)}
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": labelled})
        return False
    return objects.is_usable(node)
