"""The public API as tenants reach it: its certificate, and the Ingress or Gateway that ends TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret
from pulumi_kubernetes.networking.v1 import Ingress

from components.kubernetes_objects import PART_OF, after

NAME, CERTIFICATE = "api", "api-tls"
_LONGEST_STREAM_SECONDS = 3600
"""A log is followed for so long (`caas.api.containers`), also while its container says nothing."""

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
class Issuer:
    """An issuer of cert-manager, and the host that it is asked for."""

    kind: str
    name: str
    host: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    chain: pulumi.Input[str]
    """In PEM, the server's own first."""
    private_key: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class ApiCertificateArgs:
    namespace: pulumi.Input[str]
    source: Issuer | Pair


class ApiCertificate(pulumi.ComponentResource):
    """Owns the Secret, or the Certificate from which cert-manager makes it."""

    secret: pulumi.Output[str]
    """Name of the Secret, of type kubernetes.io/tls."""

    def __init__(
        self, name: str, args: ApiCertificateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:ApiCertificate", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        metadata: Any = {"name": CERTIFICATE, "namespace": args.namespace, "labels": PART_OF}
        if isinstance(args.source, Pair):
            made = Secret(
                f"{name}-secret",
                metadata=metadata,
                type="kubernetes.io/tls",
                string_data={
                    "tls.crt": args.source.chain,
                    "tls.key": pulumi.Output.secret(args.source.private_key),
                },
                opts=child,
            )
            self.secret = made.metadata.name
        else:
            kind, issuer = args.source.kind, args.source.name
            asked = CustomResource(
                f"{name}-certificate",
                api_version="cert-manager.io/v1",
                kind="Certificate",
                metadata=metadata,
                spec={
                    "secretName": CERTIFICATE,
                    "dnsNames": [args.source.host],
                    "issuerRef": {"group": "cert-manager.io", "kind": kind, "name": issuer},
                    "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                    "usages": ["digital signature", "server auth"],
                },
                opts=child,
            )
            self.secret = asked.id.apply(lambda _: CERTIFICATE)
        self.register_outputs({"secret": self.secret})


@dataclass(frozen=True, kw_only=True)
class ApiExposureArgs:
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
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        if args.kind == "ingress":
            self._ingress()
        else:
            self._gateway()
        self.register_outputs({})

    def _ingress(self) -> None:
        args = self._args
        backend = {"service": {"name": args.service, "port": {"number": args.service_port}}}
        everything = {"path": "/", "path_type": "Prefix", "backend": backend}
        spec: Any = {
            "ingress_class_name": args.class_name,
            "tls": [{"hosts": [args.host], "secret_name": args.certificate}],
            "rules": [{"host": args.host, "http": {"paths": [everything]}}],
        }
        annotations = {**CLASS_ANNOTATIONS.get(args.class_name, {}), **args.annotations}
        metadata: Any = {**self._metadata(NAME), "annotations": annotations}
        Ingress(f"{self._name}-ingress", metadata=metadata, spec=spec, opts=self._child)

    def _gateway(self) -> None:
        args = self._args
        common = {"hostname": args.host, "allowedRoutes": {"namespaces": {"from": "Same"}}}
        certificates = [{"kind": "Secret", "name": args.certificate}]
        tls = {"mode": "Terminate", "certificateRefs": certificates}
        gateway_spec: dict[str, Any] = {
            "gatewayClassName": args.class_name,
            "listeners": [
                {"name": "http", "protocol": "HTTP", "port": 80, **common},
                {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls, **common},
            ],
        }
        if args.annotations:
            # Of the Service and its pods, which the gateway's controller makes.
            gateway_spec["infrastructure"] = {"annotations": dict(args.annotations)}
        gateway = self._object("gateway", "Gateway", NAME, gateway_spec)
        redirect = {"scheme": "https", "statusCode": 301}
        to_https = {"filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]}
        to_service = {
            "backendRefs": [{"name": args.service, "port": args.service_port}],
            # Log streams go on for longer than any default; 0 is without end (GEP-1742).
            "timeouts": {"request": "0s"},
        }
        for listener, route, rule in (
            ("http", f"{NAME}-to-https", to_https),
            ("https", NAME, to_service),
        ):
            spec = {
                "parentRefs": [{"name": NAME, "sectionName": listener}],
                "hostnames": [args.host],
                "rules": [rule],
            }
            self._object(f"{listener}-route", "HTTPRoute", route, spec, gateway)

    def _object(
        self, suffix: str, kind: str, name: str, spec: Mapping[str, Any], *earlier: pulumi.Resource
    ) -> CustomResource:
        annotations = {"annotations": dict(self._args.annotations)} if kind == "Gateway" else {}
        return CustomResource(
            f"{self._name}-{suffix}",
            api_version="gateway.networking.k8s.io/v1",
            kind=kind,
            metadata={**self._metadata(name), **annotations},
            spec=spec,
            opts=after(*earlier, opts=self._child),
        )

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self._args.namespace, "labels": PART_OF}
