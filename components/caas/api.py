"""The public API as tenants reach it: its certificate, and the Ingress or Gateway that ends TLS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret
from pulumi_kubernetes.networking.v1 import Ingress

from components.component import Component, Told
from components.kubernetes_objects import PART_OF, after
from gpuclusters.core import scripts

NAME, CERTIFICATE = "api", "api-tls"
MANIFEST = "container_api/exposure.yaml"


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
            asked = CustomResource(
                f"{name}-certificate",
                api_version="cert-manager.io/v1",
                kind="Certificate",
                metadata=metadata,
                spec=scripts.manifest(
                    MANIFEST,
                    {
                        "certificate": CERTIFICATE,
                        "host": self.source.host,
                        "kind": self.source.kind,
                        "issuer": self.source.name,
                    },
                    "certificate",
                ),
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
        annotations = dict(self.annotations)
        words = {
            "class": self.class_name,
            "host": self.host,
            "service": self.service,
            "port": self.service_port,
            "certificate": self.certificate,
            "gateway": NAME,
            "infrastructure": {"annotations": annotations} if annotations else None,
        }
        said = partial(scripts.manifest, MANIFEST, words)
        if self.kind == "ingress":
            known = said("ingress-annotations").get(self.class_name, {})
            metadata: Any = {**self._metadata(NAME), "annotations": {**known, **annotations}}
            Ingress(
                f"{self._name}-ingress", metadata=metadata, spec=said("ingress"), opts=self.child
            )
            return
        make = partial(CustomResource, api_version="gateway.networking.k8s.io/v1")
        gateway = make(
            f"{self._name}-gateway",
            kind="Gateway",
            metadata={**self._metadata(NAME), "annotations": annotations},
            spec=said("gateway"),
            opts=self.child,
        )
        for part, route in (("http-route", f"{NAME}-to-https"), ("https-route", NAME)):
            make(
                f"{self._name}-{part}",
                kind="HTTPRoute",
                metadata=self._metadata(route),
                spec=said(part),
                opts=after(gateway, opts=self.child),
            )

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, "labels": PART_OF}
