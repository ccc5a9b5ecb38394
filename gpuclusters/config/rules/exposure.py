"""Row 25: how tenants reach the API over TLS."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.exposure import (
    ExternalExposure,
    GatewayExposure,
    GivenCertificate,
    IngressExposure,
)
from gpuclusters.config.fault import HIDDEN, NOTHING, finding, show
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.domain import certificate

_CHAIN: Path = ("api", "exposure", "certificate", "chain")
_CHARTS = {
    "nginx": ("rke2-ingress-nginx",),
    "traefik": ("rke2-traefik", "rke2-traefik-crd"),
}
"""By class of Ingress the charts of RKE2 that serve it."""


@rule(25, "caas.api-without-tls")
def tenants_reach_the_api_over_tls(config: CaasConfig) -> Iterable[Finding]:
    if config.api.exposure is None and not uses_lab(config):
        yield finding(
            ("api", "exposure"),
            "is missing: tenants would send their tokens in clear",
            NOTHING,
            "write {kind: ingress, ingress-class: nginx, host: api.example.com, certificate: {source: "
            "cert-manager, issuer: NAME}}, or {kind: external} if something that you have ends TLS",
        )


@rule(25, "caas.exposure-in-lab")
def the_lab_exposes_its_own_api(config: CaasConfig) -> Iterable[Finding]:
    exposure = config.api.exposure
    if exposure is None or isinstance(exposure, ExternalExposure):
        return
    if isinstance(config.kubernetes, LabKubernetes):
        yield finding(
            ("api", "exposure"),
            "is nothing that the lab has; its API ends TLS itself, with a certificate of the lab",
            show(exposure.kind),
            "remove it, or write {kind: external} for plain HTTP",
        )


@rule(25, "caas.proxies-unknown")
def proxies_are_known(config: CaasConfig) -> Iterable[Finding]:
    if isinstance(config.api.exposure, ExternalExposure) and not config.api.proxies:
        yield finding(
            ("api", "proxies"),
            "is empty while api.exposure.kind is external: all connections would count as one client's",
            show([]),
            "write the networks from which your load balancer calls the API: [10.20.0.0/24]",
        )


@rule(25, "caas.ingress-class-unserved")
def rke2_serves_the_ingress_class(config: CaasConfig) -> Iterable[Finding]:
    exposure, cluster = config.api.exposure, config.kubernetes
    if not isinstance(exposure, IngressExposure) or not isinstance(cluster, Rke2Kubernetes):
        return
    charts = _CHARTS.get(exposure.ingress_class, ())
    if missing := [chart for chart in charts if chart in cluster.disabled_charts]:
        kept = [chart for chart in cluster.disabled_charts if chart not in charts]
        yield finding(
            ("api", "exposure", "ingress-class"),
            f"is served by {' and '.join(missing)}, which kubernetes.disabled-charts leaves out",
            show(exposure.ingress_class),
            f"write kubernetes.disabled-charts: [{', '.join(kept)}], or another class",
        )


@rule(25, "caas.gateway-crds-missing")
def a_gateway_has_its_kinds(config: CaasConfig) -> Iterable[Finding]:
    if isinstance(config.api.exposure, GatewayExposure) and isinstance(
        config.kubernetes, Rke2Kubernetes
    ):
        yield finding(
            ("api", "exposure", "kind"),
            "needs the CRDs of the Gateway API, which a cluster made by RKE2 does not have",
            show("gateway"),
            "write ingress with ingress-class: cilium, or load-balancer",
        )


@rule(25, "caas.certificate-host")
def the_certificate_is_for_the_host(config: CaasConfig) -> Iterable[Finding]:
    found = _given(config)
    if found is None:
        return
    host, chain = found
    if not certificate.covers(chain, host):
        known = ", ".join(certificate.names(chain)) or "no DNS name"
        yield finding(
            _CHAIN,
            f"is for {known} and not for api.exposure.host",
            show(host),
            "give a certificate for this host, or the host that it is for",
        )


@rule(25, "caas.certificate-chain")
def the_chain_is_in_order(config: CaasConfig) -> Iterable[Finding]:
    found = _given(config)
    if found is not None and not certificate.is_in_order(found[1]):
        yield finding(
            _CHAIN,
            "holds a certificate that the one after it did not sign",
            HIDDEN,
            "write the host's certificate first, then the one that signed it, and so on",
        )


@rule(25, "caas.certificate-expired")
def the_certificate_is_valid(config: CaasConfig) -> Iterable[Finding]:
    found = _given(config)
    if found is None:
        return
    _, chain = found
    now = datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.begins(chain), certificate.ends(chain)
    if now >= ends:
        yield finding(_CHAIN, "has expired", _day(ends), "give a new one, with its key")
    elif now < begins:
        yield finding(
            _CHAIN, "is not valid yet", _day(begins), "give one that is, or wait until then"
        )


def _given(config: CaasConfig) -> tuple[str, certificate.Chain] | None:
    exposure = config.api.exposure
    if exposure is None or isinstance(exposure, ExternalExposure):
        return None
    if not isinstance(exposure.certificate, GivenCertificate):
        return None
    return exposure.host, certificate.read(exposure.certificate.chain)


def _day(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%d}"
