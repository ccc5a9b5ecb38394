"""The objects that the lab itself keeps in the cluster, and the kubeconfigs to reach it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.control_plane.layout import Layout
from lab.control_plane.model import NodeSpec
from lab.control_plane.pki import CA
from lab.control_plane.ports import LOOPBACK
from lab.kubeconfig import kubeconfig
from lab.tools.catalogue import KUBERNETES_VERSION, KWOK_VERSION, host_platform

MANIFESTS = Path(__file__).parent / "manifests"
STAND_IN_LABEL = "gpu-clusters.dev/stand-in"

Object = dict[str, Any]


def stand_ins() -> list[Object]:
    """Custom resource definitions of Cilium and the rights of KWOK."""
    with (MANIFESTS / "stand-ins.yaml").open() as stream:
        return list(yaml.safe_load_all(stream))


def node(spec: NodeSpec) -> Object:
    """The Node without its status; KWOK takes care of what is annotated as fake."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": spec.name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/arch": host_platform().arch,
                "kubernetes.io/hostname": spec.name,
                "kubernetes.io/os": "linux",
                **spec.labels,
                STAND_IN_LABEL: "true",
            },
        },
        "spec": {
            "taints": [
                {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
                for t in spec.taints
            ]
        }
        if spec.taints
        else {},
    }


def node_status(spec: NodeSpec, kubelet_port: int) -> Object:
    """What a kubelet would say about its machine when it registers."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name},
        "status": {
            "capacity": dict(spec.capacity),
            "allocatable": dict(spec.allocatable),
            "addresses": [
                {"type": "Hostname", "address": spec.name},
                {"type": "InternalIP", "address": LOOPBACK},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "nodeInfo": {
                "architecture": host_platform().arch,
                "bootID": "",
                "containerRuntimeVersion": f"kwok://{KWOK_VERSION}",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{KUBERNETES_VERSION}+kwok",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated host (KWOK)",
                "systemUUID": "",
            },
        },
    }


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
