"""What stands before the public API: an Ingress, or a Gateway with its routes. It ends TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.networking.v1 import Ingress

from components.caas.program import PART_OF

NAME = "api"
_LONGEST_STREAM_SECONDS = 3600
"""A log is followed for so long (`caas.api.streams`), also while its container says nothing."""

CLASS_ANNOTATIONS: Mapping[str, Mapping[str, str]] = {
    # ingress-nginx, "Annotations": redirects by default where there is TLS; silent streams end after 60 s.
    "nginx": {
        "nginx.ingress.kubernetes.io/force-ssl-redirect": "true",
        "nginx.ingress.kubernetes.io/proxy-read-timeout": str(_LONGEST_STREAM_SECONDS),
    },
    # Cilium 1.20, "Ingress", supported annotations.
    "cilium": {
        "ingress.cilium.io/force-https": "enabled",
        "ingress.cilium.io/request-timeout": "0s",
    },
    # Traefik 3, "Kubernetes Ingress": nothing is served at the entry point of plain HTTP.
    "traefik": {"traefik.ingress.kubernetes.io/router.entrypoints": "websecure"},
}
"""What makes the known classes lead from HTTP to HTTPS, and let log streams be silent."""


@dataclass(frozen=True, kw_only=True)
class ApiExposureArgs:
    """By which kind and class, as which host, and what is behind it."""

    kind: Literal["ingress", "gateway"]
    class_name: str
    host: str
    namespace: pulumi.Input[str]
    service: pulumi.Input[str]
    service_port: int
    certificate: pulumi.Input[str]
    """Name of the Secret."""
    annotations: Mapping[str, str] = field(default_factory=dict)


class ApiExposure(pulumi.ComponentResource):
    """Owns the Ingress, or a Gateway with one route for tenants and one that leads from HTTP to HTTPS."""

    def __init__(
        self, name: str, args: ApiExposureArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:ApiExposure", name, None, opts)
        self._name = name
        self._args = args
        if args.kind == "ingress":
            self._ingress()
        else:
            self._gateway()
        self.register_outputs({})

    def _ingress(self) -> None:
        args = self._args
        backend = {"service": {"name": args.service, "port": {"number": args.service_port}}}
        spec: Any = {
            "ingress_class_name": args.class_name,
            "tls": [{"hosts": [args.host], "secret_name": args.certificate}],
            "rules": [
                {
                    "host": args.host,
                    "http": {"paths": [{"path": "/", "path_type": "Prefix", "backend": backend}]},
                }
            ],
        }
        annotations = {**CLASS_ANNOTATIONS.get(args.class_name, {}), **args.annotations}
        metadata: Any = {**self._metadata(NAME), "annotations": annotations}
        Ingress(
            f"{self._name}-ingress",
            metadata=metadata,
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _gateway(self) -> None:
        args = self._args
        gateway = self._object(
            "gateway",
            "Gateway",
            NAME,
            {
                "gatewayClassName": args.class_name,
                "listeners": [
                    {
                        "name": "http",
                        "protocol": "HTTP",
                        "port": 80,
                        "hostname": args.host,
                        "allowedRoutes": {"namespaces": {"from": "Same"}},
                    },
                    {
                        "name": "https",
                        "protocol": "HTTPS",
                        "port": 443,
                        "hostname": args.host,
                        "tls": {
                            "mode": "Terminate",
                            "certificateRefs": [{"kind": "Secret", "name": args.certificate}],
                        },
                        "allowedRoutes": {"namespaces": {"from": "Same"}},
                    },
                ],
                # Of the Service and its pods, which the gateway's controller makes.
                **(
                    {"infrastructure": {"annotations": dict(args.annotations)}}
                    if args.annotations
                    else {}
                ),
            },
        )
        self._route(
            gateway,
            "http",
            f"{NAME}-to-https",
            {
                "filters": [
                    {
                        "type": "RequestRedirect",
                        "requestRedirect": {"scheme": "https", "statusCode": 301},
                    }
                ]
            },
        )
        self._route(
            gateway,
            "https",
            NAME,
            {
                "backendRefs": [{"name": args.service, "port": args.service_port}],
                # Log streams go on for longer than any default; 0 is without end (GEP-1742).
                "timeouts": {"request": "0s"},
            },
        )

    def _route(
        self, gateway: CustomResource, listener: str, route: str, rule: Mapping[str, Any]
    ) -> None:
        self._object(
            f"{listener}-route",
            "HTTPRoute",
            route,
            {
                "parentRefs": [{"name": NAME, "sectionName": listener}],
                "hostnames": [self._args.host],
                "rules": [rule],
            },
            gateway,
        )

    def _object(
        self, suffix: str, kind: str, name: str, spec: Mapping[str, Any], *after: pulumi.Resource
    ) -> CustomResource:
        annotations = {"annotations": dict(self._args.annotations)} if kind == "Gateway" else {}
        return CustomResource(
            f"{self._name}-{suffix}",
            api_version="gateway.networking.k8s.io/v1",
            kind=kind,
            metadata={**self._metadata(name), **annotations},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self._args.namespace, "labels": PART_OF}
