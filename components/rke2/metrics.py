"""Metrics of an rke2 cluster: namespaces, Prometheus, Grafana, the rules and dashboards about its GPUs.

Does not own the ServiceMonitor of the GPU exporter: the operator makes it, and leaves it out while its kind
is unknown, which is why this comes first.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any

from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace

from components import helm
from components.component import Component, Told
from components.helm import Chart
from components.kubernetes_objects import DASHBOARDS, PART_OF, after, dashboard, pod_security
from gpuclusters.metrics import alerts, monitoring_stack
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring


class Metrics(Component, module="rke2"):
    """Ready when the chart is, so that the GPU operator finds the kinds of the Prometheus operator."""

    kind: Monitoring
    chart: Chart
    crd_chart: Chart | None = None
    """Brings the CRDs in a release of its own, which upgrades them; Rancher's chart needs it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The user's own, above ours."""
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many of each resource each node offers when all is well, by node and resource."""
    timeout_seconds: int = 900

    def declare(self) -> Told:
        name, child = self._name, self.child
        names = NAMES[self.kind]
        spaces = [
            Namespace(
                f"{name}-{space}",
                metadata={"name": space, "labels": {**PART_OF, **pod_security("privileged")}},
                opts=child,
            )
            for space in dict.fromkeys((names.namespace, names.dashboards))
        ]
        install = partial(
            helm.install, namespace=names.namespace, timeout_seconds=self.timeout_seconds
        )
        inside = after(*spaces, opts=child)
        before = inside
        if self.crd_chart is not None:
            full = f"{name}-{names.crd_release}"
            crds = install(full, self.crd_chart, inside, release=names.crd_release, values={})
            before = after(crds, opts=child)
        values = monitoring_stack.chart_values(
            self.kind, crds_apart=self.crd_chart is not None, given=self.values
        )
        full = f"{name}-{names.release}"
        release = install(full, self.chart, before, release=names.release, values=values)
        CustomResource(
            f"{name}-alerts",
            api_version="monitoring.coreos.com/v1",
            kind="PrometheusRule",
            metadata={
                "name": alerts.RULES_NAME,
                "namespace": names.namespace,
                "labels": {**PART_OF, **monitoring_stack.monitor_labels(self.kind)},
            },
            spec={"groups": list(alerts.groups(self.expected))},
            opts=after(release, opts=child),
        )
        for file in sorted(DASHBOARDS.glob("rke2-*.json")):
            ConfigMap(
                f"{name}-{file.stem}",
                metadata={
                    "name": f"gpu-clusters-{file.stem}",
                    "namespace": names.dashboards,
                    "labels": {**PART_OF, **monitoring_stack.DASHBOARD_LABELS},
                },
                data={file.name: dashboard(file.name)},
                opts=inside,
            )
        return {"namespace": names.namespace}
