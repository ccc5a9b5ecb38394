"""What the operator makes beside DaemonSets: the exporter's Service and ServiceMonitor, the RuntimeClass.

After NVIDIA/gpu-operator v26.7.0, `assets/state-dcgm-exporter/` (`0400_service`, `0500_service_monitor`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lab.cluster import ObjectKind
from lab.gpu_operator.operands import EXPORTER, owner
from lab.gpu_operator.view import View

RUNTIME_CLASS: Final = ObjectKind(
    "node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
SERVICE: Final = ObjectKind("v1", "services", "Service")
SERVICE_MONITOR: Final = ObjectKind("monitoring.coreos.com/v1", "servicemonitors", "ServiceMonitor")
OPTIONAL: Final = (SERVICE_MONITOR,)
"""Kinds that a cluster may not have: what is of them is skipped."""


def objects(view: View) -> Iterator[tuple[ObjectKind, Mapping[str, Any]]]:
    yield from _runtime_class(view)
    section = view.spec.get("dcgmExporter") or {}
    if not section.get("enabled"):
        return
    labels = {"app": EXPORTER.name}
    common = {"name": EXPORTER.name, "namespace": view.namespace}
    owned = {"ownerReferences": [owner(view.policy)]}
    ports = [{"name": "gpu-metrics", "port": 9400, "targetPort": 9400, "protocol": "TCP"}]
    policy = (section.get("service") or {}).get("internalTrafficPolicy", "Cluster")
    yield (
        SERVICE,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": common | owned | {"labels": labels},
            "spec": {"selector": labels, "ports": ports, "internalTrafficPolicy": policy},
        },
    )
    monitor = section.get("serviceMonitor") or {}
    if monitor.get("enabled"):
        extra = monitor.get("additionalLabels") or {}
        yield (
            SERVICE_MONITOR,
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "ServiceMonitor",
                "metadata": common | owned | {"labels": labels | extra},
                "spec": {
                    "endpoints": [_endpoint(monitor)],
                    "jobLabel": "app",
                    "namespaceSelector": {"matchNames": [view.namespace]},
                    "selector": {"matchLabels": labels},
                },
            },
        )


def _endpoint(monitor: Mapping[str, Any]) -> dict[str, Any]:
    chosen = ("interval", "scrapeTimeout", "honorLabels", "relabelings")
    given = {key: monitor[key] for key in chosen if monitor.get(key)}
    return {"port": "gpu-metrics", "path": "/metrics", **given}


def _runtime_class(view: View) -> Iterator[tuple[ObjectKind, Mapping[str, Any]]]:
    # With the NRI plugin the operator has none.
    if not (view.spec.get("cdi") or {}).get("nriPluginEnabled"):
        name = str((view.spec.get("operator") or {}).get("runtimeClass", "nvidia"))
        metadata = {"name": name, "ownerReferences": [owner(view.policy)]}
        yield (
            RUNTIME_CLASS,
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": metadata,
                "handler": "nvidia",
            },
        )
