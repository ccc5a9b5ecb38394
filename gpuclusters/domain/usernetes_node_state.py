"""What is kept of one host of a Usernetes cluster beside its inputs; nothing secret. Pure."""

from __future__ import annotations

from typing import Any

from gpuclusters.domain.usernetes_cluster import CONTROL_PLANE, ClusterNode, sync_faults
from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.domain.usernetes_node_live import LiveNode, drift


def outputs(
    inputs: UsernetesNodeInputs, live: LiveNode, node: ClusterNode | None
) -> dict[str, Any]:
    """The outputs, without kubeconfig and certificates.

    Args:
        inputs: what it must be.
        live: the host.
        node: as the cluster knows it; None where the cluster cannot be asked or has none.
    """
    address = inputs.host_ip or live.host_ip or live.route
    is_member = bool(live.joined) and live.joined == live.cluster_id
    return {
        "joined": is_member and live.is_running,
        "member_of": live.joined,
        "address": address,
        "kubernetes": node.version if node else "",
        "gpu_uuids": sorted(name for name in live.cdi if name.startswith("GPU-")),
        "drift": [*drift(inputs, live), *_cluster_drift(inputs, live, node, address)],
    }


def _cluster_drift(
    inputs: UsernetesNodeInputs, live: LiveNode, node: ClusterNode | None, address: str
) -> list[str]:
    if not live.is_running or not live.joined:
        return []  # said already
    if node is None:
        return ["the cluster does not know the node, or its API does not answer"]
    found = sync_faults(node, address)
    if not node.ready:
        found.append(f"the node is not Ready: {node.reason or 'no word of its kubelet'}")
    if node.drained_for:
        found.append(f"the node is closed for {node.drained_for}")
    is_tainted = CONTROL_PLANE in node.taints
    if inputs.is_control_plane and is_tainted == inputs.schedule_on_control_plane:
        found.append("the taint of the control plane is not as it must be")
    return found
