"""Which monitoring a cluster gets, and the values that make it see the GPUs.

kube-prometheus-stack: its Prometheus selects the label `release=<release>` only, unless the
`…NilUsesHelmValues` switches are off; Grafana's sidecar reads ConfigMaps of its own namespace only,
unless told `ALL`. Rancher Monitoring is the same chart with other defaults, its dashboards in
`cattle-dashboards`. RKE2 lets its control plane listen on loopback, where kube-prometheus-stack cannot
scrape it, and runs kube-proxy as a static pod; Rancher's chart has proxies for that, which are switched
on by `rke2…` values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuclusters.core.model import merged

DASHBOARD_LABEL = "grafana_dashboard"
DASHBOARD_VALUE = "1"
"""Must be exactly this since kube-prometheus-stack 32.2."""


class Monitoring(StrEnum):
    NONE = "none"
    """None of ours; GPU metrics are exported all the same."""
    KUBE_PROMETHEUS_STACK = "kube-prometheus-stack"
    RANCHER = "rancher"


@dataclass(frozen=True, slots=True)
class Names:
    release: str
    crd_release: str
    namespace: str
    dashboards: str

    repository: str


NAMES: Mapping[Monitoring, Names] = {
    Monitoring.KUBE_PROMETHEUS_STACK: Names(
        release="kube-prometheus-stack",
        crd_release="prometheus-operator-crds",
        namespace="monitoring",
        dashboards="monitoring",
        repository="https://prometheus-community.github.io/helm-charts",
    ),
    Monitoring.RANCHER: Names(
        release="rancher-monitoring",
        crd_release="rancher-monitoring-crd",
        namespace="cattle-monitoring-system",
        dashboards="cattle-dashboards",
        repository="https://charts.rancher.io",
    ),
}


def prometheus(kind: Monitoring) -> Mapping[str, Any] | None:
    """Where a Prometheus answers queries, for a proof; None without monitoring."""
    if kind is Monitoring.NONE:
        return None
    return {"namespace": NAMES[kind].namespace, "service": "prometheus-operated", "port": 9090}


def chart_values(
    kind: Monitoring, *, crds_apart: bool, given: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Values of the chart: ours, and above them what the user states."""
    selectors = (
        f"{what}SelectorNilUsesHelmValues" for what in ("serviceMonitor", "podMonitor", "rule")
    )
    ours: dict[str, Any] = {"prometheus": {"prometheusSpec": dict.fromkeys(selectors, False)}}
    parts = ("ControllerManager", "Scheduler", "Etcd", "Proxy")
    if kind is Monitoring.RANCHER:
        return _stated(merged(ours | {f"rke2{part}": {"enabled": True} for part in parts}, given))
    dashboards = {"label": DASHBOARD_LABEL, "labelValue": DASHBOARD_VALUE, "searchNamespace": "ALL"}
    ours |= {
        "crds": {"enabled": not crds_apart},
        "grafana": {"sidecar": {"dashboards": {"enabled": True, **dashboards}}},
        # Else their alerts fire from the first minute on.
        **{f"kube{part}": {"enabled": False} for part in parts},
    }
    return _stated(merged(ours, given))


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None: Helm takes null for "remove the chart's default", and Pulumi keeps it."""
    found = {key: value for key, value in values.items() if value is not None}
    return {k: _stated(v) if isinstance(v, Mapping) else v for k, v in found.items()}


def monitor_labels(kind: Monitoring) -> Mapping[str, str]:
    """Labels with which every ServiceMonitor and PrometheusRule is selected by the chart's defaults too."""
    if kind is Monitoring.KUBE_PROMETHEUS_STACK:
        return {"release": NAMES[kind].release}
    return {}


def operator_values(kind: Monitoring) -> Mapping[str, Any]:
    """The part of the GPU operator's values about metrics."""
    exporter: dict[str, Any] = {"enabled": True, "serviceMonitor": {"enabled": False}}
    if kind is not Monitoring.NONE:
        # The exporter's own label for it is renamed between releases; this one is Prometheus' and stays.
        node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
        exporter["serviceMonitor"] = {
            "enabled": True,
            "additionalLabels": dict(monitor_labels(kind)),
            # Rules and dashboards ask for exported_pod, which another value would call pod.
            "honorLabels": False,
            "relabelings": [{"action": "replace", **node}],
        }
    return {"dcgmExporter": exporter}


def dashboard_labels() -> Mapping[str, str]:
    """Labels of a ConfigMap that Grafana's sidecar reads."""
    return {DASHBOARD_LABEL: DASHBOARD_VALUE}
