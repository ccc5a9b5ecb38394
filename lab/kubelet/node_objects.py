"""A node as its kubelet describes it, and the lease that says that the kubelet lives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lab import kata_runtime
from lab.cluster import LEASE
from lab.control_plane import NodeSpec
from lab.control_plane.objects import STAND_IN_LABEL, node, node_status
from lab.nodes.choice import Kind
from lab.tools.catalogue import KUBERNETES_VERSION

STAND_IN = "kubelet"
"""Value of the label that marks a node as one of a stand-in of the kubelet, and not of KWOK."""
LEASE_SECONDS = 40

_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "there is memory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "there is room on the disk"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "there are process ids"),
    # What Cilium's operator would say.
    "NetworkUnavailable": ("False", "CiliumIsUp", "no agent runs here (stand-in)"),
    "Ready": ("True", "KubeletReady", "the stand-in of the kubelet is ready"),
}


def node_object(spec: NodeSpec) -> dict[str, Any]:
    body = node(spec)
    metadata = body["metadata"]
    # Without KWOK's annotation the node is none of KWOK's.
    metadata["annotations"] = kata_runtime.node_annotations(Kind.SIMULATED)
    metadata["labels"][STAND_IN_LABEL] = STAND_IN
    return body


def status_object(
    spec: NodeSpec, port: int, devices: Mapping[str, tuple[int, int]], since: datetime
) -> dict[str, Any]:
    """The status, with what the device plugins say: all devices and healthy ones by resource."""
    body = node_status(spec, port)
    status = body["status"]
    for field, index in (("capacity", 0), ("allocatable", 1)):
        own = {name: amount for name, amount in status[field].items() if "/" not in name}
        status[field] = own | {name: str(count[index]) for name, count in devices.items()}
    status["nodeInfo"] |= {
        "containerRuntimeVersion": "stand-in://0",
        "kubeletVersion": f"v{KUBERNETES_VERSION}+standin",
        "osImage": "simulated host (stand-in of a kubelet)",
    }
    now = timestamp(datetime.now(UTC))
    status["conditions"] = [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": timestamp(since),
        }
        for kind, (value, reason, message) in _HEALTHY.items()
    ]
    return body


def lease_object(node_name: str) -> dict[str, Any]:
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"name": node_name, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node_name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.now(UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
        },
    }


def timestamp(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
