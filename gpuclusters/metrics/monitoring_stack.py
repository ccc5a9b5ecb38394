"""Which monitoring a cluster gets, and the values that make it see the GPUs.

kube-prometheus-stack: its Prometheus selects the label `release=<release>` only, unless the
`…NilUsesHelmValues` switches are off; Grafana's sidecar reads ConfigMaps of its own namespace only,
unless told `ALL`. Rancher Monitoring is the same chart with other defaults, its dashboards in
`cattle-dashboards`. RKE2 lets its control plane listen on loopback, where kube-prometheus-stack cannot
scrape it, and runs kube-proxy as a static pod; Rancher's chart has proxies for that, which are switched
on by `rke2…` values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DASHBOARD_LABEL = "grafana_dashboard"
DASHBOARD_VALUE = "1"
"""Must be exactly this since kube-prometheus-stack 32.2."""


class Monitoring(StrEnum):
    """Which one."""

    NONE = "none"
    """None of ours; GPU metrics are exported all the same."""
    KUBE_PROMETHEUS_STACK = "kube-prometheus-stack"
    RANCHER = "rancher"


@dataclass(frozen=True, slots=True)
class Names:
    """What each of them calls things."""

    release: str
    crd_release: str
    namespace: str
    dashboards: str
    """Namespace of dashboards."""
    prometheus_service: str
    """Where Prometheus answers queries, port 9090."""


NAMES: Mapping[Monitoring, Names] = {
    Monitoring.KUBE_PROMETHEUS_STACK: Names(
        "kube-prometheus-stack",
        "prometheus-operator-crds",
        "monitoring",
        "monitoring",
        "prometheus-operated",
    ),
    Monitoring.RANCHER: Names(
        "rancher-monitoring",
        "rancher-monitoring-crd",
        "cattle-monitoring-system",
        "cattle-dashboards",
        "prometheus-operated",
    ),
}


REPOSITORIES: Mapping[Monitoring, str] = {
    Monitoring.KUBE_PROMETHEUS_STACK: "https://prometheus-community.github.io/helm-charts",
    Monitoring.RANCHER: "https://charts.rancher.io",
}
"""Where the projects publish their charts."""
_PROMETHEUS_PORT = 9090


def prometheus(kind: Monitoring) -> Mapping[str, Any] | None:
    """Where a Prometheus answers queries, for a proof; None without monitoring."""
    if kind is Monitoring.NONE:
        return None
    names = NAMES[kind]
    return {
        "namespace": names.namespace,
        "service": names.prometheus_service,
        "port": _PROMETHEUS_PORT,
    }


def chart_values(
    kind: Monitoring, *, crds_apart: bool, given: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Values of the chart: ours, and above them what the user states."""
    if kind is Monitoring.RANCHER:
        return merged(_rancher(), given)
    return merged(_kube_prometheus_stack(crds_apart=crds_apart), given)


def monitor_labels(kind: Monitoring) -> Mapping[str, str]:
    """Labels with which every ServiceMonitor and PrometheusRule is selected by the chart's defaults too."""
    if kind is Monitoring.KUBE_PROMETHEUS_STACK:
        return {"release": NAMES[kind].release}
    return {}


def operator_values(kind: Monitoring, *, counters: str | None) -> Mapping[str, Any]:
    """The part of the GPU operator's values about metrics; `counters`: a ConfigMap."""
    exporter: dict[str, Any] = {"enabled": True}
    if counters is not None:
        exporter["config"] = {"name": counters, "create": False}
    watched = kind is not Monitoring.NONE
    monitor: dict[str, Any] = {"enabled": watched}
    if watched:
        monitor["additionalLabels"] = dict(monitor_labels(kind))
        # Rules and dashboards ask for exported_pod, which another value would call pod.
        monitor["honorLabels"] = False
        # The exporter's own label for it is renamed between releases; this one is Prometheus' and stays.
        monitor["relabelings"] = [
            {
                "action": "replace",
                "sourceLabels": ["__meta_kubernetes_pod_node_name"],
                "targetLabel": "node",
            }
        ]
    return {"dcgmExporter": {**exporter, "serviceMonitor": monitor}}


def dashboard_labels() -> Mapping[str, str]:
    """Labels of a ConfigMap that Grafana's sidecar reads."""
    return {DASHBOARD_LABEL: DASHBOARD_VALUE}


def merged(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings key by key, everything else replaced; `given` wins. What is None there is left out of it."""
    result = dict(ours)
    for key, value in given.items():
        if value is None:
            # Helm would take null for "remove the chart's default", and Pulumi keeps it.
            result.pop(key, None)
        elif isinstance(value, Mapping):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def _selects_everything() -> dict[str, Any]:
    return {
        "serviceMonitorSelectorNilUsesHelmValues": False,
        "podMonitorSelectorNilUsesHelmValues": False,
        "ruleSelectorNilUsesHelmValues": False,
    }


def _kube_prometheus_stack(*, crds_apart: bool) -> dict[str, Any]:
    unreachable = ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
    return {
        "crds": {"enabled": not crds_apart},
        "prometheus": {"prometheusSpec": _selects_everything()},
        "grafana": {
            "sidecar": {
                "dashboards": {
                    "enabled": True,
                    "label": DASHBOARD_LABEL,
                    "labelValue": DASHBOARD_VALUE,
                    "searchNamespace": "ALL",
                }
            }
        },
        # Else their alerts fire from the first minute on.
        **{name: {"enabled": False} for name in unreachable},
    }


def _rancher() -> dict[str, Any]:
    parts = ("rke2ControllerManager", "rke2Scheduler", "rke2Etcd", "rke2Proxy")
    return {
        "prometheus": {"prometheusSpec": _selects_everything()},
        **{name: {"enabled": True} for name in parts},
    }
