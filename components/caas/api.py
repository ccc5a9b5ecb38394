"""The public API as tenants reach it: its certificate, and the Ingress or Gateway that ends TLS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret
from pulumi_kubernetes.networking.v1 import Ingress

from components.component import Component, Told
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


class ApiCertificate(Component, module="caas"):
    """Owns the Secret, or the Certificate from which cert-manager makes it."""

    namespace: pulumi.Input[str]
    source: Issuer | Pair

    secret: pulumi.Output[str] = field(init=False)
    """Name of the Secret, of type kubernetes.io/tls."""

    def declare(self) -> Told:
        name, child = self._name, self.child
        metadata: Any = {"name": CERTIFICATE, "namespace": self.namespace, "labels": PART_OF}
        if isinstance(self.source, Pair):
            made = Secret(
                f"{name}-secret",
                metadata=metadata,
                type="kubernetes.io/tls",
                string_data={
                    "tls.crt": self.source.chain,
                    "tls.key": pulumi.Output.secret(self.source.private_key),
                },
                opts=child,
            )
            self.secret = made.metadata.name
        else:
            kind, issuer = self.source.kind, self.source.name
            asked = CustomResource(
                f"{name}-certificate",
                api_version="cert-manager.io/v1",
                kind="Certificate",
                metadata=metadata,
                spec={
                    "secretName": CERTIFICATE,
                    "dnsNames": [self.source.host],
                    "issuerRef": {"group": "cert-manager.io", "kind": kind, "name": issuer},
                    "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                    "usages": ["digital signature", "server auth"],
                },
                opts=child,
            )
            self.secret = asked.id.apply(lambda _: CERTIFICATE)
        return {"secret": self.secret}


class ApiExposure(Component, module="caas"):
    """Owns the Ingress, or a Gateway with one route for tenants and one that leads from HTTP to HTTPS."""

    kind: Literal["ingress", "gateway"]
    class_name: str
    host: str
    namespace: pulumi.Input[str]
    service: pulumi.Input[str]
    service_port: int
    certificate: pulumi.Input[str]
    """Name of the Secret."""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def declare(self) -> None:
        if self.kind == "ingress":
            self._ingress()
        else:
            self._gateway()

    def _ingress(self) -> None:
        backend = {"service": {"name": self.service, "port": {"number": self.service_port}}}
        everything = {"path": "/", "path_type": "Prefix", "backend": backend}
        spec: Any = {
            "ingress_class_name": self.class_name,
            "tls": [{"hosts": [self.host], "secret_name": self.certificate}],
            "rules": [{"host": self.host, "http": {"paths": [everything]}}],
        }
        annotations = {**CLASS_ANNOTATIONS.get(self.class_name, {}), **self.annotations}
        metadata: Any = {**self._metadata(NAME), "annotations": annotations}
        Ingress(f"{self._name}-ingress", metadata=metadata, spec=spec, opts=self.child)

    def _gateway(self) -> None:
        common = {"hostname": self.host, "allowedRoutes": {"namespaces": {"from": "Same"}}}
        certificates = [{"kind": "Secret", "name": self.certificate}]
        tls = {"mode": "Terminate", "certificateRefs": certificates}
        gateway_spec: dict[str, Any] = {
            "gatewayClassName": self.class_name,
            "listeners": [
                {"name": "http", "protocol": "HTTP", "port": 80, **common},
                {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls, **common},
            ],
        }
        if self.annotations:
            # Of the Service and its pods, which the gateway's controller makes.
            gateway_spec["infrastructure"] = {"annotations": dict(self.annotations)}
        gateway = self._object("gateway", "Gateway", NAME, gateway_spec)
        redirect = {"scheme": "https", "statusCode": 301}
        to_https = {"filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]}
        to_service = {
            "backendRefs": [{"name": self.service, "port": self.service_port}],
            # Log streams go on for longer than any default; 0 is without end (GEP-1742).
            "timeouts": {"request": "0s"},
        }
        for listener, route, rule in (
            ("http", f"{NAME}-to-https", to_https),
            ("https", NAME, to_service),
        ):
            spec = {
                "parentRefs": [{"name": NAME, "sectionName": listener}],
                "hostnames": [self.host],
                "rules": [rule],
            }
            self._object(f"{listener}-route", "HTTPRoute", route, spec, gateway)

    def _object(
        self, suffix: str, kind: str, name: str, spec: Mapping[str, Any], *earlier: pulumi.Resource
    ) -> CustomResource:
        annotations = {"annotations": dict(self.annotations)} if kind == "Gateway" else {}
        return CustomResource(
            f"{self._name}-{suffix}",
            api_version="gateway.networking.k8s.io/v1",
            kind=kind,
            metadata={**self._metadata(name), **annotations},
            spec=spec,
            opts=after(*earlier, opts=self.child),
        )

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, "labels": PART_OF}
