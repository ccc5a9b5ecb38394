"""What runs inside a `caas` cluster: controllers, the API, a device plugin on each host, each closed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from operator import itemgetter
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import DaemonSet, Deployment
from pulumi_kubernetes.core.v1 import ConfigMap, Service
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from components.caas.system import SETTINGS_KEY, System
from components.component import Component, Told
from components.kubernetes_objects import DASHBOARDS, PART_OF, after, dashboard
from gpuclusters.core import scripts
from gpuclusters.tenancy.programs import POLICY, Ports, Program, Reach, network_policies

API_PORT = 8080
"""For tenants; nothing else is served there."""
CONTROLLERS_PORT = 8081
DEVICE_PLUGIN_PORT = 8082
API_METRICS_PORT = 8083

PORTS = {
    Program.CONTROLLERS: Ports(metrics=CONTROLLERS_PORT),
    Program.API: Ports(serves=API_PORT, metrics=API_METRICS_PORT),
    Program.DEVICE_PLUGIN: Ports(metrics=DEVICE_PLUGIN_PORT),
}
METRICS = "metrics"
"""Name of the port for probes and metrics."""
SERVES = "serves"
"""Name of the port for callers."""
LABEL = "app.kubernetes.io/name"


def labels(program: Program) -> dict[str, str]:
    return {LABEL: f"gpu-clusters-{program}"}


def _said(part: str, **words: Any) -> Any:
    return scripts.manifest("tenancy/programs.yaml", words, part)


def pod_template(program: Program, args: Programs) -> dict[str, Any]:
    home, ports, own = args.system.homes[program], PORTS[program], labels(program)
    every = _said("every-program", settings=home.settings, file=SETTINGS_KEY)
    more: Mapping[str, Any] = {}
    if program is not Program.API or args.certificate is not None:
        words = {"secret": args.system.secret, "certificate": args.certificate}
        more = _said(program.value, **words)
    answers = [{"name": METRICS, "containerPort": ports.metrics}]
    if ports.serves:
        answers.append({"name": SERVES, "containerPort": ports.serves})
    on_host, pulling = program is Program.DEVICE_PLUGIN, args.image_pull_secret
    template: dict[str, Any] = _said(
        "pod",
        program=program.value,
        module=program.replace("-", "_"),
        image=args.image,
        account=home.account,
        digest=args.system.settings_digest,
        labels={**own, **PART_OF},
        ports=answers,
        memory="512Mi" if program is Program.CONTROLLERS else "256Mi",
        pulling=[{"name": pulling}] if pulling else None,
        user=0 if on_host else 65532,
        group=None if on_host else 65532,
        not_root=None if on_host else True,
        priority=f"system-{'node' if on_host else 'cluster'}-critical",
        spread=None if on_host else _said("spread", labels=own),
        # A host that is being drained still has GPUs to take back.
        tolerations=[{"operator": "Exists"}] if on_host else None,
        affinity=_said("affinity", nodes=sorted(args.nodes)) if on_host else None,
        **{part: [*said, *more.get(part, ())] for part, said in every.items()},
    )
    return template


class Programs(Component, module="caas"):
    """Owns two Deployments, their disruption budgets, the API's Service and the plugin's DaemonSet."""

    image: str
    replicas: int
    nodes: Sequence[str]
    """The nodes whose GPUs are handed out."""
    system: System
    certificate: pulumi.Input[str] | None = None
    """Name of the Secret with the API's certificate, where the API itself ends TLS."""
    balanced: Mapping[str, str] | None = None
    """Annotations of the API's Service where that is of type LoadBalancer; None: it is not."""
    image_pull_secret: str | None = None

    api_service: pulumi.Output[str] = field(init=False)
    """Name of the API's Service."""
    api_port: int = field(init=False)
    """Its port: 443 where the API itself ends TLS, else 80."""

    def declare(self) -> Told:
        name = self._name
        self._workload(Deployment, Program.CONTROLLERS, replicas=self.replicas)
        api = self._workload(Deployment, Program.API, replicas=self.replicas)
        self._workload(DaemonSet, Program.DEVICE_PLUGIN)
        self.api_port = 80 if self.certificate is None else 443
        port: Any = {
            "name": "http" if self.certificate is None else "https",
            "port": self.api_port,
            "target_port": SERVES,
        }
        spec: Any = {"selector": labels(Program.API), "ports": [port]}
        if self.balanced is not None:
            # Of a client whose address is lost on the way, the API could not count the connections.
            spec |= {"type": "LoadBalancer", "external_traffic_policy": "Local"}
        metadata: Any = self._metadata(Program.API)
        if self.balanced:
            metadata["annotations"] = dict(self.balanced)
        service = Service(
            f"{name}-api-service",
            metadata=metadata,
            spec=spec,
            # A Service is waited for until it has endpoints. Without the Deployment, which may have failed,
            # or not have been begun because something else had, that would be ten minutes for nothing.
            opts=after(api, opts=self.child),
        )
        self.api_service = service.metadata.name
        return {"api_service": self.api_service}

    def _metadata(self, program: Program) -> Any:
        return {
            "name": program.value,
            "namespace": self.system.homes[program].namespace,
            "labels": labels(program),
        }

    def _workload(
        self, kind: type[Deployment | DaemonSet], program: Program, **replicas: int
    ) -> pulumi.Resource:
        name, metadata = f"{self._name}-{program}", self._metadata(program)
        selector = {"match_labels": labels(program)}
        spec: Any = {**replicas, "selector": selector, "template": pod_template(program, self)}
        made = kind(name, metadata=metadata, spec=spec, opts=self.child)
        if replicas and self.replicas > 1:
            budget: Any = {"max_unavailable": 1, "selector": selector}
            PodDisruptionBudget(f"{name}-budget", metadata=metadata, spec=budget, opts=self.child)
        return made


class ProgramNetwork(Component, module="caas"):
    """Owns a CiliumNetworkPolicy in the namespace of each program."""

    system: System
    reach: pulumi.Input[Reach]
    monitored: bool
    """Whether the Prometheus Operator collects their metrics."""
    callers: Sequence[str] = ()
    """Networks outside of the cluster from which the API is called."""

    def declare(self) -> None:
        name = self._name
        reach = pulumi.Output.from_input(self.reach)
        made = reach.apply(
            lambda known: network_policies(
                known, PORTS, monitored=self.monitored, callers=list(self.callers)
            )
        )
        for program, home in self.system.homes.items():
            CustomResource(
                f"{name}-{program}",
                api_version="cilium.io/v2",
                kind="CiliumNetworkPolicy",
                metadata={"name": POLICY, "namespace": home.namespace},
                spec=made.apply(itemgetter(program)),
                opts=self.child,
            )


class Monitoring(Component, module="caas"):
    """ServiceMonitor, alert rules and dashboard; the Prometheus Operator must be installed before."""

    system: System

    def declare(self) -> None:
        name, child = self._name, self.child
        namespaces = {program: home.namespace for program, home in self.system.homes.items()}
        home = namespaces[Program.API]
        services = [
            Service(
                f"{name}-{program}-service",
                metadata={"name": "metrics", "namespace": namespace, "labels": PART_OF},
                spec=_said("metrics-service", part_of=PART_OF),
                opts=child,
            )
            for program, namespace in namespaces.items()
        ]
        CustomResource(
            f"{name}-monitor",
            api_version="monitoring.coreos.com/v1",
            kind="ServiceMonitor",
            metadata={"name": "gpu-clusters", "namespace": home, "labels": PART_OF},
            spec=_said("monitor", part_of=PART_OF, namespaces=list(namespaces.values())),
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
