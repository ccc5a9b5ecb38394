"""`api.exposure`: how tenants reach the API over TLS."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.config.base import (
    DnsLabel,
    ObjectName,
    PemCertificate,
    Section,
    Text,
    matches,
    refusal,
)
from gpuclusters.domain import certificate


def _chain(value: str) -> str:
    try:
        certificate.read(value)
    except ValueError:
        raise refusal(
            "is not a chain of certificates in PEM", "write its text after `chain: |`"
        ) from None
    return value


HostName = Annotated[
    Text,
    matches(
        r"(?=.{,253}$)([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
        "is not a full host name in lower case",
        "write the name that tenants call, without https:// and port: api.example.com",
    ),
]
CertificateChain = Annotated[PemCertificate, AfterValidator(_chain)]


class IssuerKind(StrEnum):
    """Whose issuer of cert-manager it is."""

    CLUSTER_ISSUER = "ClusterIssuer"
    ISSUER = "Issuer"


class ManagedCertificate(Section):
    """cert-manager gets the certificate and renews it. It must be installed, with this issuer."""

    source: Literal["cert-manager"]
    """Where the certificate comes from."""
    issuer: ObjectName
    """Name of the issuer."""
    issuer_kind: IssuerKind = IssuerKind.CLUSTER_ISSUER
    """ClusterIssuer, or Issuer for one in the namespace of the API."""


class GivenCertificate(Section):
    """A certificate that you have. Its private key is the secret `gpu-clusters:api-private-key`."""

    source: Literal["given"]
    """Where the certificate comes from."""
    chain: CertificateChain
    """Certificate of the host, then those of the authorities that signed it, in PEM."""


Certificate = Annotated[ManagedCertificate | GivenCertificate, Field(discriminator="source")]


class _Exposure(Section):
    host: HostName
    """Name by which tenants call the API. DNS leads it to the ingress, the gateway or the balancer."""
    certificate: Certificate
    """What is shown to tenants."""
    annotations: dict[Text, Text] = Field(default_factory=dict)
    """More annotations of the Ingress, of the Gateway and its Service, or of the Service."""


class IngressExposure(_Exposure):
    """An Ingress, whose controller ends TLS."""

    kind: Literal["ingress"]
    """What stands before the API."""
    ingress_class: ObjectName
    """Class of the Ingress: nginx, cilium, traefik, or another one of the cluster."""


class GatewayExposure(_Exposure):
    """A Gateway of its own, with its routes; the gateway ends TLS. Needs the Gateway API's CRDs."""

    kind: Literal["gateway"]
    """What stands before the API."""
    gateway_class: DnsLabel
    """Class of the Gateway, such as cilium."""


class LoadBalancerExposure(_Exposure):
    """The API's Service gets an address of its own, and the API itself ends TLS."""

    kind: Literal["load-balancer"]
    """What stands before the API."""


class ExternalExposure(Section):
    """Something that you have ends TLS and leads to the Service of the API. Nothing is declared for it."""

    kind: Literal["external"]
    """What stands before the API."""


Exposure = Annotated[
    IngressExposure | GatewayExposure | LoadBalancerExposure | ExternalExposure,
    Field(discriminator="kind"),
]
