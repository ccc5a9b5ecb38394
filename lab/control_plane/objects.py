"""The objects that the lab itself keeps in the cluster, and the kubeconfigs to reach it."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.control_plane.layout import Layout
from lab.control_plane.pki import CA
from lab.control_plane.ports import LOOPBACK
from lab.kubeconfig import kubeconfig

MANIFESTS = Path(__file__).parent / "manifests"
STAND_IN_LABEL = "gpu-clusters.dev/stand-in"

Object = dict[str, Any]


def stand_ins() -> list[Object]:
    """Custom resource definitions of Cilium, and the rights of who plays kubelets."""
    with (MANIFESTS / "stand-ins.yaml").open() as stream:
        return list(yaml.safe_load_all(stream))


def kubeconfig_of(layout: Layout, client: str, ports: Mapping[str, int]) -> bytes:
    """A kubeconfig that holds all it needs, so that it can be copied or kept as a secret."""
    cluster = {
        "server": f"https://{LOOPBACK}:{ports['kube-apiserver']}",
        "certificate-authority-data": _encoded(layout.certificate(CA)),
    }
    user = {
        "client-certificate-data": _encoded(layout.certificate(client)),
        "client-key-data": _encoded(layout.key(client)),
    }
    return kubeconfig(cluster, user, client=client).encode()


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
