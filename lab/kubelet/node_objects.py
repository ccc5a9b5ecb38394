"""A node as its kubelet describes it, and the lease that says that the kubelet lives."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lab import kata_runtime
from lab.cluster import LEASE, NODE
from lab.control_plane import NodeSpec
from lab.control_plane.objects import STAND_IN_LABEL
from lab.control_plane.ports import LOOPBACK
from lab.nodes.choice import Kind
from lab.tools.catalogue import KUBERNETES_VERSION, host_platform

STAND_IN = "kubelet"
"""Value of the label that marks a node as one whose kubelet is played."""
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
    body: dict[str, Any] = {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": {
            "name": spec.name,
            "annotations": dict(kata_runtime.node_annotations(Kind.SIMULATED)),
            "labels": {
                "kubernetes.io/arch": host_platform().arch,
                "kubernetes.io/hostname": spec.name,
                "kubernetes.io/os": "linux",
                **spec.labels,
                STAND_IN_LABEL: STAND_IN,
            },
        },
        "spec": {},
    }
    if spec.taints:
        body["spec"]["taints"] = [
            {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
            for t in spec.taints
        ]
    return body


def status_object(
    spec: NodeSpec, port: int, devices: Mapping[str, tuple[int, int]], since: datetime
) -> dict[str, Any]:
    """The status, with what the device plugins say: all devices and healthy ones by resource."""
    now = timestamp(datetime.now(UTC))
    conditions = [
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

    def offered(stated: Mapping[str, str], index: int) -> dict[str, str]:
        own = {name: amount for name, amount in stated.items() if "/" not in name}
        return own | {name: str(count[index]) for name, count in devices.items()}

    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": {"name": spec.name},
        "status": {
            "capacity": offered(spec.capacity, 0),
            "allocatable": offered(spec.allocatable, 1),
            "addresses": [
                {"type": "Hostname", "address": spec.name},
                {"type": "InternalIP", "address": LOOPBACK},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {
                "architecture": host_platform().arch,
                "bootID": "",
                "containerRuntimeVersion": "stand-in://0",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{KUBERNETES_VERSION}+standin",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated host (stand-in of a kubelet)",
                "systemUUID": "",
            },
            "conditions": conditions,
        },
    }


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
