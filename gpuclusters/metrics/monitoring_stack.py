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

from gpuclusters.core import scripts
from gpuclusters.core.model import merged

DASHBOARD_LABELS = {"grafana_dashboard": "1"}
"""Labels of a ConfigMap that Grafana's sidecar reads; exactly this since kube-prometheus-stack 32.2."""


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


def _written(*parts: str, **words: Any) -> dict[str, Any]:
    found: dict[str, Any] = scripts.manifest("metrics/monitoring.yaml", words, *parts)
    return found


NAMES: Mapping[Monitoring, Names] = {
    kind: Names(**_written(kind, "names")) for kind in Monitoring if kind is not Monitoring.NONE
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
    return _stated(merged(_written(kind, "values", own_crds=not crds_apart), given))


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None: Helm takes null for "remove the chart's default", and Pulumi keeps it."""
    found = {key: value for key, value in values.items() if value is not None}
    return {k: _stated(v) if isinstance(v, Mapping) else v for k, v in found.items()}


def monitor_labels(kind: Monitoring) -> Mapping[str, str]:
    """Labels with which every ServiceMonitor and PrometheusRule is selected by the chart's defaults too."""
    return {} if kind is Monitoring.NONE else _written(kind, "labels")


def operator_values(kind: Monitoring) -> Mapping[str, Any]:
    """The part of the GPU operator's values about metrics."""
    if kind is Monitoring.NONE:
        return {"dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": False}}}
    return _written("exporter", labels=monitor_labels(kind))
