"""What the lab keeps in the cluster: the stand-ins and the nodes of the simulated hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.control_plane.kube import KubeApi
from lab.control_plane.model import ControlPlaneError, NodeSpec
from lab.control_plane.objects import STAND_IN_LABEL, node, node_status, stand_ins

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install_stand_ins(api: KubeApi) -> None:
    """Custom resource definitions of Cilium and the rights of KWOK."""
    for manifest in stand_ins():
        api.apply(manifest)


def stand_ins_served(api: KubeApi) -> bool:
    """Whether the API server serves the stand-in kinds and describes them.

    KWOK reads the description of a kind when it starts and ends when there is none yet.
    """
    found = api.get(f"{_CRDS}?labelSelector={STAND_IN_LABEL}%3Dtrue")["items"]
    expected = sum(manifest["kind"] == "CustomResourceDefinition" for manifest in stand_ins())
    if len(found) < expected or not all(_is_true(crd, "Established") for crd in found):
        return False
    return {f"apis/{crd['spec']['group']}/v2" for crd in found} <= set(
        api.get("/openapi/v3")["paths"]
    )


def register(api: KubeApi, nodes: Sequence[NodeSpec], kubelet_port: int) -> None:
    """Make exactly `nodes` the simulated nodes of the cluster.

    Raises `ControlPlaneError` when the API server does not accept one.
    """
    wanted = {spec.name for spec in nodes}
    present = {name for name, _ in _simulated(api)}
    for gone in sorted(present - wanted):
        api.delete(f"/api/v1/nodes/{gone}")
    for spec in nodes:
        try:
            api.apply(node(spec))
            api.apply(node_status(spec, kubelet_port), subresource="/status")
        except ControlPlaneError as error:
            raise ControlPlaneError(f"node {spec.name} cannot be registered: {error}") from error


def nodes_ready(api: KubeApi, nodes: Sequence[NodeSpec]) -> bool:
    """Whether every node is Ready and free of the taints that a new node starts with."""
    ready = {name for name, found in _simulated(api) if _is_usable(found)}
    return ready >= {spec.name for spec in nodes}


def accepts_pods(api: KubeApi) -> bool:
    """Whether the namespace `default` has its service account, without which no pod is accepted."""
    status, _ = api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    return status == 200


def _simulated(api: KubeApi) -> list[tuple[str, dict[str, Any]]]:
    found = api.get(f"/api/v1/nodes?labelSelector={STAND_IN_LABEL}%3Dtrue")["items"]
    return [(item["metadata"]["name"], item) for item in found]


def _is_usable(found: dict[str, Any]) -> bool:
    taints = [taint["key"] for taint in found["spec"].get("taints", [])]
    return _is_true(found, "Ready") and "node.kubernetes.io/not-ready" not in taints


def _is_true(manifest: dict[str, Any], condition: str) -> bool:
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)
