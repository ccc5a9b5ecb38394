"""What runs inside a `caas` cluster: controllers, the API, a device plugin on each host, each closed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import DaemonSet, Deployment
from pulumi_kubernetes.core.v1 import ConfigMap, Service
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from components.caas.system import SETTINGS_KEY, System
from components.kubernetes_objects import DASHBOARDS, PART_OF, after, dashboard
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
_SETTINGS_FOLDER = "/etc/gpu-clusters"
_SECRETS_FOLDER = "/etc/gpu-clusters-secrets"
_TLS_FOLDER = "/etc/gpu-clusters-tls"
_SCRATCH_FOLDER = "/tmp"  # noqa: S108 - an emptyDir of the pod
_START_SECONDS = 120
"""How long a program may take until it answers for the first time."""
_DISK = "256Mi"
"""Request and limit of what a program writes, its log included."""
_KUBELET_FOLDERS = (
    ("device-plugins", "KUBELET_DEVICE_PLUGINS", ""),
    ("pod-resources", "KUBELET_POD_RESOURCES", "/kubelet.sock"),
)
"""Of the kubelet's, which the device plugin has to reach: name, variable that says where, file in it."""


@dataclass(frozen=True, kw_only=True)
class ProgramsArgs:
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


def labels(program: Program) -> dict[str, str]:
    return {LABEL: f"gpu-clusters-{program}"}


def pod_template(program: Program, args: ProgramsArgs) -> dict[str, Any]:
    home, ports = args.system.homes[program], PORTS[program]
    environment: dict[str, Any] = {
        "GPU_CLUSTERS_SETTINGS": {"value": f"{_SETTINGS_FOLDER}/{SETTINGS_KEY}"},
        **_field("POD_IP", "status.podIP"),
        **_field("POD_NAME", "metadata.name"),
        **_field("NODE_NAME", "spec.nodeName"),
    }
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []

    def mount(name: str, path: str, *, read_only: bool = False, **source: Any) -> None:
        mode = {"read_only": True} if read_only else {}
        mounts.append({"name": name, "mount_path": path, **mode})
        volumes.append({"name": name, **source})

    mount("settings", _SETTINGS_FOLDER, read_only=True, config_map={"name": home.settings})
    mount("scratch", _SCRATCH_FOLDER, empty_dir={"size_limit": _DISK})
    # Secrets are readable for the pod's group: the program is not root.
    if program is Program.CONTROLLERS:
        environment["GPU_CLUSTERS_SECRETS"] = {"value": _SECRETS_FOLDER}
        secret: Any = {"secret_name": args.system.secrets, "default_mode": 0o440}
        mount("secrets", _SECRETS_FOLDER, read_only=True, secret=secret)
    if program is Program.API and args.certificate is not None:
        environment["GPU_CLUSTERS_API_TLS"] = {"value": _TLS_FOLDER}
        # The whole folder and no single files: only so it changes when the certificate is renewed.
        secret = {"secret_name": args.certificate, "default_mode": 0o440}
        mount("tls", _TLS_FOLDER, read_only=True, secret=secret)
    on_host = program is Program.DEVICE_PLUGIN
    for name, variable, file in _KUBELET_FOLDERS if on_host else ():
        path = f"/var/lib/kubelet/{name}"
        environment[variable] = {"value": path + file}
        mount(name, path, host_path={"path": path, "type": "Directory"})
    memory = "512Mi" if program is Program.CONTROLLERS else "256Mi"
    limits = {"memory": memory, "ephemeral-storage": _DISK}
    answers = [{"name": METRICS, "container_port": ports.metrics}]
    if ports.serves:
        answers.append({"name": SERVES, "container_port": ports.serves})
    container = {
        "name": program.value,
        "image": args.image,
        "command": ["python", "-m", f"caas.{program.replace('-', '_')}"],
        "env": [{"name": name, **source} for name, source in environment.items()],
        "ports": answers,
        "volume_mounts": mounts,
        "resources": {"requests": {"cpu": "100m", **limits}, "limits": limits},
        # On a busy machine a start takes longer than liveness waits, which would kill it again and again.
        "startup_probe": _probe("/healthz", period=2, failures=_START_SECONDS // 2),
        "readiness_probe": _probe("/readyz", period=2),
        "liveness_probe": _probe("/healthz", period=10),
        "security_context": {
            "allow_privilege_escalation": False,
            "read_only_root_filesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    user: dict[str, Any] = {"run_as_non_root": True, "run_as_user": 65532, "fs_group": 65532}
    pulling = {"image_pull_secrets": [{"name": args.image_pull_secret}]}
    return {
        "metadata": {
            "labels": {**labels(program), **PART_OF},
            "annotations": {"gpu-clusters.dev/settings": args.system.settings_digest},
        },
        "spec": {
            "service_account_name": home.account,
            "containers": [container],
            "volumes": volumes,
            "security_context": {
                # The kubelet's folders are root's.
                **({"run_as_user": 0} if on_host else user),
                "seccomp_profile": {"type": "RuntimeDefault"},
            },
            "priority_class_name": "system-cluster-critical",
            **(pulling if args.image_pull_secret else {}),
        },
    }


def _field(name: str, path: str) -> Mapping[str, Any]:
    return {name: {"value_from": {"field_ref": {"field_path": path}}}}


def _probe(path: str, *, period: int, failures: int = 3) -> Mapping[str, Any]:
    return {
        "http_get": {"path": path, "port": METRICS},
        "period_seconds": period,
        "timeout_seconds": 2,
        "failure_threshold": failures,
    }


class Programs(pulumi.ComponentResource):
    """Owns two Deployments, their disruption budgets, the API's Service and the plugin's DaemonSet."""

    api_service: pulumi.Output[str]
    """Name of the API's Service."""
    api_port: int
    """Its port: 443 where the API itself ends TLS, else 80."""

    def __init__(
        self, name: str, args: ProgramsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        # A program starts after it may do what it has to.
        super().__init__("gpu-clusters:caas:Programs", name, None, after(args.system, opts=opts))
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._deployment(Program.CONTROLLERS)
        api = self._deployment(Program.API)
        self._daemon_set(Program.DEVICE_PLUGIN)
        self.api_port = 80 if args.certificate is None else 443
        port: Any = {
            "name": "http" if args.certificate is None else "https",
            "port": self.api_port,
            "target_port": SERVES,
        }
        spec: Any = {"selector": labels(Program.API), "ports": [port]}
        if args.balanced is not None:
            # Of a client whose address is lost on the way, the API could not count the connections.
            spec |= {"type": "LoadBalancer", "external_traffic_policy": "Local"}
        metadata: Any = self._metadata(Program.API)
        if args.balanced:
            metadata["annotations"] = dict(args.balanced)
        service = Service(
            f"{name}-api-service",
            metadata=metadata,
            spec=spec,
            # A Service is waited for until it has endpoints. Without the Deployment, which may have failed,
            # or not have been begun because something else had, that would be ten minutes for nothing.
            opts=after(api, opts=self._child),
        )
        self.api_service = service.metadata.name
        self.register_outputs({"api_service": self.api_service})

    def _metadata(self, program: Program) -> Any:
        return {
            "name": program.value,
            "namespace": self._args.system.homes[program].namespace,
            "labels": labels(program),
        }

    def _deployment(self, program: Program) -> Deployment:
        name, metadata = f"{self._name}-{program}", self._metadata(program)
        template = pod_template(program, self._args)
        selector = {"match_labels": labels(program)}
        template["spec"]["topology_spread_constraints"] = [
            {
                "max_skew": 1,
                "topology_key": "kubernetes.io/hostname",
                "when_unsatisfiable": "ScheduleAnyway",
                "label_selector": selector,
            }
        ]
        replicas = self._args.replicas
        spec: Any = {"replicas": replicas, "selector": selector, "template": template}
        deployment: Deployment = Deployment(name, metadata=metadata, spec=spec, opts=self._child)
        if replicas > 1:
            budget: Any = {"max_unavailable": 1, "selector": selector}
            PodDisruptionBudget(f"{name}-budget", metadata=metadata, spec=budget, opts=self._child)
        return deployment

    def _daemon_set(self, program: Program) -> None:
        template, key = pod_template(program, self._args), "kubernetes.io/hostname"
        hosts = {"key": key, "operator": "In", "values": sorted(self._args.nodes)}
        required = {"node_selector_terms": [{"match_expressions": [hosts]}]}
        template["spec"] |= {
            "priority_class_name": "system-node-critical",
            # A host that is being drained still has GPUs to take back.
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "node_affinity": {"required_during_scheduling_ignored_during_execution": required}
            },
        }
        spec: Any = {"selector": {"match_labels": labels(program)}, "template": template}
        metadata = self._metadata(program)
        DaemonSet(f"{self._name}-{program}", metadata=metadata, spec=spec, opts=self._child)


@dataclass(frozen=True, kw_only=True)
class ProgramNetworkArgs:
    system: System
    reach: pulumi.Input[Reach]
    monitored: bool
    """Whether the Prometheus Operator collects their metrics."""
    callers: Sequence[str] = ()
    """Networks outside of the cluster from which the API is called."""


class ProgramNetwork(pulumi.ComponentResource):
    """Owns a CiliumNetworkPolicy in the namespace of each program."""

    def __init__(
        self, name: str, args: ProgramNetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:ProgramNetwork", name, None, opts)
        reach = pulumi.Output.from_input(args.reach)
        made = reach.apply(
            lambda known: network_policies(
                known, PORTS, monitored=args.monitored, callers=list(args.callers)
            )
        )
        for program, home in args.system.homes.items():
            CustomResource(
                f"{name}-{program}",
                api_version="cilium.io/v2",
                kind="CiliumNetworkPolicy",
                metadata={"name": POLICY, "namespace": home.namespace},
                spec=made.apply(itemgetter(program)),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


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
