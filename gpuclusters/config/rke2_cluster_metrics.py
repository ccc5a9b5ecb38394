"""`metrics` of an `rke2` cluster: who collects what the GPUs report."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.config.base import Count, DnsLabel, Flag, Gib, Integer, Section, Text
from gpuclusters.config.charts import Chart


class NoMetrics(Section):
    """Nobody; the exporter runs, and no ServiceMonitor is made."""

    kind: Literal["none"]
    """Who collects."""


class _Collected(Section):
    version: Text | None = None
    """Version of the chart; by default the one that is known here (docs/rke2.md)."""
    chart: Chart | None = None
    """Where the chart comes from; by default the lab's in the lab, else the project's repository. `source:
    none`: it is installed already."""
    scrape_interval_seconds: Annotated[Integer, Field(ge=5, le=300)] = 15
    """How often the exporters are asked."""
    honor_labels: Flag = True
    """Whether pod and namespace of a workload keep these names, instead of exported_pod and
    exported_namespace."""
    alerts: Flag = True
    """Whether this program's alert rules are made."""
    dashboards: Flag = True
    """Whether this program's dashboards are made."""
    retention_days: Count = 15
    """How long Prometheus keeps samples."""
    storage_class: DnsLabel | None = None
    """StorageClass of Prometheus' volume; without it samples end with its pod."""
    storage_gib: Gib = 50
    """Size of that volume, in GiB."""


class KubePrometheusStack(_Collected):
    """Prometheus, Alertmanager and Grafana by the chart kube-prometheus-stack."""

    kind: Literal["kube-prometheus-stack"]
    """Who collects."""
    release: DnsLabel = "kube-prometheus-stack"
    """Name of its Helm release; its Prometheus selects what carries it as the label `release`."""
    namespace: DnsLabel = "monitoring"
    """Its namespace."""


class RancherMonitoring(_Collected):
    """Rancher Monitoring, in cattle-monitoring-system: rancher-monitoring-crd, then rancher-monitoring."""

    kind: Literal["rancher"]
    """Who collects."""


Metrics = Annotated[
    NoMetrics | KubePrometheusStack | RancherMonitoring, Field(discriminator="kind")
]
