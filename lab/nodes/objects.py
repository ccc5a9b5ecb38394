"""What real nodes need in the cluster, and what the cluster says of them."""

from collections.abc import Iterable
from typing import Any

from lab import kata_runtime
from lab.control_plane import NodeSpec
from lab.control_plane.kube import KubeApi
from lab.nodes.choice import Kind

LABEL = "gpu-clusters.dev/real-node"
"""On every real node: the token of its lab."""
_NOT_READY = "node.kubernetes.io/not-ready"

_KUBELET_API = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "gpu-clusters-lab:kubelet-api-admin"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:kubelet-api-admin",
    },
    "subjects": [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": "kube-apiserver-kubelet-client",
        }
    ],
}


def admit_api_server(api: KubeApi) -> None:
    """Let the API server ask kubelets for logs and commands: a real one asks whether it may."""
    api.apply(_KUBELET_API)


def forget_others(api: KubeApi, token: str, wanted: Iterable[str]) -> None:
    """Delete nodes of this lab that it has no more."""
    found = api.get(f"/api/v1/nodes?labelSelector={LABEL}%3D{token}")["items"]
    for name in {node["metadata"]["name"] for node in found} - set(wanted):
        api.delete(f"/api/v1/nodes/{name}")


def read(api: KubeApi, name: str) -> dict[str, Any] | None:
    """The Node, None while its kubelet has not registered it."""
    status, _ = api.request("GET", f"/api/v1/nodes/{name}")
    return api.get(f"/api/v1/nodes/{name}") if status == 200 else None


def label(api: KubeApi, spec: NodeSpec, token: str) -> None:
    """Give the node its labels, which a kubelet may not all give itself, and say what stands in for Kata."""
    metadata = {
        "name": spec.name,
        "labels": {**spec.labels, LABEL: token},
        "annotations": kata_runtime.node_annotations(Kind.REAL),
    }
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def is_labelled(node: dict[str, Any]) -> bool:
    """Whether it was given its labels; one that was deleted and registered again has lost them."""
    return LABEL in node["metadata"].get("labels", {})


def is_usable(node: dict[str, Any]) -> bool:
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and _NOT_READY not in taints


def delete_pods(api: KubeApi, node: str) -> None:
    """Delete all pods of a node at once: nobody is there to end them."""
    found = api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
    for pod in found:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
