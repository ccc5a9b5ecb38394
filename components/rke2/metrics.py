"""Metrics of an rke2 cluster: Prometheus, Grafana, the rules and dashboards about its GPUs.

Owns: the namespace, the CRDs' release if it is one of its own, the chart, alert rules, dashboards.
Deliberately does not own: the ServiceMonitor of the GPU exporter, which the GPU operator makes; that is
why this comes first, since the operator leaves it out while its kind is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace
from pulumi_kubernetes.helm.v3 import Release

from components.chart import Chart
from gpuclusters.domain import gpu_alerts, monitoring_stack
from gpuclusters.domain.monitoring_stack import NAMES, Monitoring, Names

DASHBOARDS = Path(__file__).resolve().parents[1] / "dashboards"
PART_OF = {"app.kubernetes.io/part-of": "gpu-clusters"}


@dataclass(frozen=True, kw_only=True)
class MetricsArgs:
    """Which monitoring, and what the rules are to expect."""

    kind: Monitoring
    chart: Chart | None = None
    """None only without monitoring."""
    crd_chart: Chart | None = None
    """Brings the CRDs in a release of its own, which upgrades them; Rancher's chart needs it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The user's own, above ours."""
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many of each resource each node offers when all is well, by node and resource."""
    timeout_seconds: int = 900
    requires: Sequence[pulumi.Resource] = ()


class Metrics(pulumi.ComponentResource):
    """Ready when the chart is, so that the GPU operator finds the kinds of the Prometheus operator."""

    ready: Sequence[pulumi.Resource]
    """What to depend on."""
    namespace: str | None
    """Where Prometheus runs; None without monitoring."""

    def __init__(
        self, name: str, args: MetricsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:Metrics", name, None, opts)
        if args.kind is Monitoring.NONE:
            self.ready, self.namespace = (), None
            self.register_outputs({})
            return
        if args.chart is None:
            raise ValueError(f"monitoring by {args.kind} needs its chart")
        names = NAMES[args.kind]
        self.namespace = names.namespace
        spaces = [
            Namespace(
                f"{name}-{space}",
                metadata={"name": space, "labels": {**PART_OF, **monitoring_stack.PRIVILEGED}},
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
            )
            for space in dict.fromkeys((names.namespace, names.dashboards))
        ]
        before: Sequence[pulumi.Resource] = spaces
        if args.crd_chart is not None:
            before = [self._release(name, names.crd_release, args.crd_chart, {}, args, spaces)]
        values = monitoring_stack.chart_values(
            args.kind, crds_apart=args.crd_chart is not None, given=args.values
        )
        release = self._release(name, names.release, args.chart, values, args, before)
        self._rules(name, names, args, release)
        self._dashboards(name, names, spaces)
        self.ready = (release,)
        self.register_outputs({"namespace": names.namespace})

    def _release(
        self,
        name: str,
        release: str,
        chart: Chart,
        values: Mapping[str, Any],
        args: MetricsArgs,
        after: Sequence[pulumi.Resource],
    ) -> Release:
        seconds = f"{args.timeout_seconds}s"
        return Release(
            f"{name}-{release}",
            name=release,
            chart=chart.reference,
            version=chart.version,
            repository_opts=chart.repository_options,
            namespace=NAMES[args.kind].namespace,
            values=dict(values),
            timeout=args.timeout_seconds,
            # A chart that is slow to start is to be looked at, not removed.
            atomic=False,
            cleanup_on_fail=False,
            max_history=5,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=seconds, update=seconds, delete=seconds
                ),
            ),
        )

    def _rules(self, name: str, names: Names, args: MetricsArgs, release: Release) -> None:
        CustomResource(
            f"{name}-alerts",
            api_version="monitoring.coreos.com/v1",
            kind="PrometheusRule",
            metadata={
                "name": gpu_alerts.RULES_NAME,
                "namespace": names.namespace,
                "labels": {**PART_OF, **monitoring_stack.monitor_labels(args.kind)},
            },
            spec={"groups": list(gpu_alerts.groups(args.expected))},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[release]),
        )

    def _dashboards(self, name: str, names: Names, spaces: Sequence[pulumi.Resource]) -> None:
        for file in sorted(DASHBOARDS.glob("rke2-*.json")):
            ConfigMap(
                f"{name}-{file.stem}",
                metadata={
                    "name": f"gpu-clusters-{file.stem}",
                    "namespace": names.dashboards,
                    "labels": {**PART_OF, **monitoring_stack.dashboard_labels()},
                },
                data={file.name: _in_one_line(file)},
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(spaces)),
            )


def _in_one_line(file: Path) -> str:
    """A ConfigMap has a limit, and nobody reads it there."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return json.dumps(document, separators=(",", ":"), sort_keys=True)
