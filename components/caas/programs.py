"""What runs inside a `caas` cluster: the controllers, the API for tenants, a device plugin on each host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet, Deployment
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from components.caas.program import SERVES, HostFolder, ProgramArgs, granted, labels, pod_template
from components.caas.system import System
from gpuclusters.tenancy.programs import Program

API_PORT = 8080
"""For tenants; nothing else is served there."""
CONTROLLERS_PORT = 8081
DEVICE_PLUGIN_PORT = 8082
API_METRICS_PORT = 8083

KUBELET_FOLDERS = (
    HostFolder(
        name="device-plugins",
        path="/var/lib/kubelet/device-plugins",
        variable="KUBELET_DEVICE_PLUGINS",
    ),
    HostFolder(
        name="pod-resources",
        path="/var/lib/kubelet/pod-resources",
        variable="KUBELET_POD_RESOURCES",
        socket="kubelet.sock",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ProgramsArgs:
    """Which image, how often, where."""

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
    requires: Sequence[pulumi.Resource] = ()
    """What must exist before the programs start: the kinds they watch, the rules they rely on."""


class Programs(pulumi.ComponentResource):
    """Owns two Deployments, their disruption budgets, the API's Service and the plugin's DaemonSet."""

    controllers: Deployment
    api_service: pulumi.Output[str]
    """Name of the API's Service."""
    api_port: int
    """Its port: 443 where the API itself ends TLS, else 80."""

    def __init__(
        self, name: str, args: ProgramsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:Programs", name, None, opts)
        self._name = name
        self._args = args
        self.controllers = self._deployment(
            self._program(Program.CONTROLLERS, CONTROLLERS_PORT, reads_secrets=True, memory="512Mi")
        )
        api = self._deployment(
            self._program(
                Program.API, API_METRICS_PORT, serves=API_PORT, certificate=args.certificate
            )
        )
        self._daemon_set(
            self._program(Program.DEVICE_PLUGIN, DEVICE_PLUGIN_PORT, host_folders=KUBELET_FOLDERS)
        )
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
            opts=pulumi.ResourceOptions(parent=self, depends_on=[api]),
        )
        self.api_service = service.metadata.name
        self.register_outputs({"api_service": self.api_service})

    def _program(self, program: Program, port: int, **more: Any) -> ProgramArgs:
        return ProgramArgs(
            program=program,
            image=self._args.image,
            port=port,
            system=self._args.system,
            image_pull_secret=self._args.image_pull_secret,
            **more,
        )

    def _options(self, args: ProgramArgs) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions.merge(
            granted(args, self), pulumi.ResourceOptions(depends_on=list(self._args.requires))
        )

    def _metadata(self, program: Program) -> Any:
        return {
            "name": program.value,
            "namespace": self._args.system.homes[program].namespace,
            "labels": labels(program),
        }

    def _deployment(self, args: ProgramArgs) -> Deployment:
        template = pod_template(args)
        template["spec"]["topology_spread_constraints"] = [
            {
                "max_skew": 1,
                "topology_key": "kubernetes.io/hostname",
                "when_unsatisfiable": "ScheduleAnyway",
                "label_selector": {"match_labels": labels(args.program)},
            }
        ]
        spec: Any = {
            "replicas": self._args.replicas,
            "selector": {"match_labels": labels(args.program)},
            "template": template,
        }
        deployment: Deployment = Deployment(
            f"{self._name}-{args.program}",
            metadata=self._metadata(args.program),
            spec=spec,
            opts=self._options(args),
        )
        if self._args.replicas > 1:
            budget: Any = {"max_unavailable": 1, "selector": {"match_labels": labels(args.program)}}
            PodDisruptionBudget(
                f"{self._name}-{args.program}-budget",
                metadata=self._metadata(args.program),
                spec=budget,
                opts=pulumi.ResourceOptions(parent=self),
            )
        return deployment

    def _daemon_set(self, args: ProgramArgs) -> None:
        template = pod_template(args)
        template["spec"] |= {
            "priority_class_name": "system-node-critical",
            # A host that is being drained still has GPUs to take back.
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "node_affinity": {
                    "required_during_scheduling_ignored_during_execution": {
                        "node_selector_terms": [
                            {
                                "match_expressions": [
                                    {
                                        "key": "kubernetes.io/hostname",
                                        "operator": "In",
                                        "values": sorted(self._args.nodes),
                                    }
                                ]
                            }
                        ]
                    }
                }
            },
        }
        spec: Any = {"selector": {"match_labels": labels(args.program)}, "template": template}
        DaemonSet(
            f"{self._name}-{args.program}",
            metadata=self._metadata(args.program),
            spec=spec,
            opts=self._options(args),
        )
