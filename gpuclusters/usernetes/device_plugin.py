"""NVIDIA's device plugin for nodes that are rootless containers, as objects; pure.

The chain that is known to work: the plugin hands GPUs out as the variable NVIDIA_VISIBLE_DEVICES with
their UUIDs, the node's default runtime is nvidia in CDI mode, and it finds a CDI name for each UUID in
the node's own specification. The plugin's own pod gets all GPUs the same way, by the variable in its image.

After NVIDIA/k8s-device-plugin, `deployments/static/nvidia-device-plugin.yml`, and NVIDIA/dcgm-exporter,
`dcgm-exporter.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuclusters.core.custom_resource import GROUP

NAMESPACE = "kube-system"
PLUGIN = "nvidia-device-plugin-daemonset"
PLUGIN_LABELS: Mapping[str, str] = {"name": "nvidia-device-plugin-ds"}
PLUGIN_CONTAINER = "nvidia-device-plugin-ctr"
EXPORTER = "nvidia-dcgm-exporter"
EXPORTER_LABELS: Mapping[str, str] = {"app.kubernetes.io/name": "dcgm-exporter"}
EXPORTER_PORT = 9400
RUNTIME_CLASS = "nvidia"
"""Of the RuntimeClass, and of the handler that `nvidia-ctk runtime configure` makes in containerd."""

_DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES = "/var/lib/kubelet/pod-resources"
_UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_PART_OF = {"app.kubernetes.io/part-of": "gpu-clusters"}
# The gate behind it says what is wrong in a minute; the provider's own wait would say "not ready" in ten.
_SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
_EVERYWHERE = (
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
)


def runtime_class() -> dict[str, Any]:
    """For pods that name it; pods that do not get the same runtime, which is the node's default."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS, "labels": dict(_PART_OF)},
        "handler": RUNTIME_CLASS,
    }


def device_plugin(image: str) -> dict[str, Any]:
    """The DaemonSet, whose plugin ends without GPUs: one that waits for them for ever looks healthy."""
    container = {
        "name": PLUGIN_CONTAINER,
        "image": image,
        "env": [
            {"name": "FAIL_ON_INIT_ERROR", "value": "true"},
            {"name": "DEVICE_LIST_STRATEGY", "value": "envvar"},
            {"name": "DEVICE_ID_STRATEGY", "value": "uuid"},
        ],
        "securityContext": dict(_UNPRIVILEGED),
        "volumeMounts": [{"name": "device-plugins", "mountPath": _DEVICE_PLUGINS}],
    }
    # Directory: a path that is not there is a mistake, and must not be made by the mount.
    volume = {"name": "device-plugins", "hostPath": {"path": _DEVICE_PLUGINS, "type": "Directory"}}
    return _daemon_set(PLUGIN, PLUGIN_LABELS, container, [volume])


def dcgm_exporter(image: str) -> dict[str, Any]:
    """The DaemonSet of the metrics; it shows GPUs by pod through the kubelet's own list."""
    container = {
        "name": "dcgm-exporter",
        "image": image,
        "env": [
            {"name": "DCGM_EXPORTER_LISTEN", "value": f":{EXPORTER_PORT}"},
            {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
        ],
        "ports": [{"name": "metrics", "containerPort": EXPORTER_PORT}],
        # Profiling needs SYS_ADMIN over the host, which no rootless node has: those metrics are absent.
        "securityContext": {**_UNPRIVILEGED, "runAsUser": 0},
        "volumeMounts": [{"name": "pod-resources", "mountPath": _POD_RESOURCES, "readOnly": True}],
    }
    volume = {"name": "pod-resources", "hostPath": {"path": _POD_RESOURCES, "type": "Directory"}}
    return _daemon_set(EXPORTER, EXPORTER_LABELS, container, [volume])


def exporter_service() -> dict[str, Any]:
    """Where a Prometheus finds the metrics."""
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(EXPORTER_PORT)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": EXPORTER,
            "namespace": NAMESPACE,
            "labels": {**_PART_OF, **EXPORTER_LABELS},
            "annotations": {**scraped, **_SKIP_AWAIT},
        },
        "spec": {
            "selector": dict(EXPORTER_LABELS),
            "ports": [{"name": "metrics", "port": EXPORTER_PORT, "targetPort": EXPORTER_PORT}],
        },
    }


def _daemon_set(
    name: str, labels: Mapping[str, str], container: Mapping[str, Any], volumes: list[Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**_PART_OF, **labels},
            "annotations": dict(_SKIP_AWAIT),
        },
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": {**labels, f"{GROUP}/component": name}},
                "spec": {
                    "tolerations": [dict(one) for one in _EVERYWHERE],
                    "priorityClassName": "system-node-critical",
                    "automountServiceAccountToken": False,
                    "containers": [dict(container)],
                    "volumes": volumes,
                },
            },
        },
    }
