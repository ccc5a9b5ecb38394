"""`metrics` of an `rke2` cluster: who collects what the GPUs report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gpuclusters.config.base import Count, DnsLabel, Gib, Integer, Section, Text
from gpuclusters.config.charts import FileChart, LabChart, RegistryChart

MetricsChart = Annotated[RegistryChart | FileChart | LabChart, Field(discriminator="source")]


class NoMetrics(Section):
    """Nobody; the exporters run, and no ServiceMonitor is made."""

    kind: Literal["none"]
    """Who collects."""


class Volume(Section):
    """Where Prometheus keeps its samples; without one they end with its pod."""

    storage_class: DnsLabel
    """StorageClass of the volume."""
    size_gib: Gib
    """Its size, in GiB."""


class _Collected(Section):
    version: Text
    """Version of the chart, and of the chart of its CRDs."""
    chart: MetricsChart | None = None
    """Where the chart comes from; by default the lab's in the lab, else the project's repository."""
    scrape_interval_seconds: Annotated[Integer, Field(ge=5, le=300)] = 15
    """How often the exporters are asked."""
    retention_days: Count = 15
    """How long Prometheus keeps samples."""
    volume: Volume | None = None
    """Where it keeps them."""
    values: Mapping[Text, Any] = Field(default_factory=dict)
    """More values of the chart, above this program's."""


class KubePrometheusStack(_Collected):
    """Prometheus, Alertmanager and Grafana by the chart kube-prometheus-stack, in namespace monitoring."""

    kind: Literal["kube-prometheus-stack"]
    """Who collects."""


class RancherMonitoring(_Collected):
    """Rancher Monitoring, in cattle-monitoring-system: rancher-monitoring-crd, then rancher-monitoring."""

    kind: Literal["rancher"]
    """Who collects."""
    crd_chart: MetricsChart | None = None
    """Where the chart of the CRDs comes from; by default as the chart itself."""


Metrics = Annotated[
    NoMetrics | KubePrometheusStack | RancherMonitoring, Field(discriminator="kind")
]
