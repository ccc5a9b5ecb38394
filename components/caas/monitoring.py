"""What the Prometheus Operator and Grafana are told about the cluster's programs."""

from __future__ import annotations

import pulumi
import yaml
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Service

from components.caas.programs import METRICS
from components.caas.system import System
from components.kubernetes_objects import DASHBOARDS, PART_OF, after, dashboard
from gpuclusters.tenancy.programs import Program


class Monitoring(pulumi.ComponentResource):
    """ServiceMonitor, alert rules and dashboard; the Prometheus Operator must be installed before."""

    def __init__(
        self, name: str, system: System, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        namespaces = {program: home.namespace for program, home in system.homes.items()}
        home = namespaces[Program.API]
        services = [
            Service(
                f"{name}-{program}-service",
                metadata={"name": "metrics", "namespace": namespace, "labels": PART_OF},
                # Headless: every pod is asked for itself, at the port of that name.
                spec={
                    "cluster_ip": "None",
                    "selector": PART_OF,
                    "ports": [{"name": METRICS, "port": 80, "target_port": METRICS}],
                },
                opts=child,
            )
            for program, namespace in namespaces.items()
        ]
        CustomResource(
            f"{name}-monitor",
            api_version="monitoring.coreos.com/v1",
            kind="ServiceMonitor",
            metadata={"name": "gpu-clusters", "namespace": home, "labels": PART_OF},
            spec={
                "selector": {"matchLabels": PART_OF},
                "namespaceSelector": {"matchNames": list(namespaces.values())},
                "endpoints": [{"port": METRICS, "path": "/metrics", "interval": "15s"}],
            },
            opts=after(*services, opts=child),
        )
        rules = yaml.safe_load((DASHBOARDS / "alerts.yaml").read_text(encoding="utf-8"))
        CustomResource(
            f"{name}-alerts",
            api_version=rules["apiVersion"],
            kind=rules["kind"],
            metadata={**rules["metadata"], "namespace": home},
            spec=rules["spec"],
            opts=child,
        )
        ConfigMap(
            f"{name}-dashboard",
            metadata={
                "name": "gpu-clusters-dashboard",
                "namespace": home,
                "labels": {**PART_OF, "grafana_dashboard": "1"},
            },
            data={"gpu-clusters-caas.json": dashboard("caas.json")},
            opts=child,
        )
        self.register_outputs({})
