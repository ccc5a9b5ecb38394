"""Rows 22, 23 and 25: what a hand-over compares with, the programs, and how tenants reach them."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable

from gpuclusters.config import certificate
from gpuclusters.config.api import (
    Api,
    ExternalExposure,
    GatewayExposure,
    GivenCertificate,
    IngressExposure,
)
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.fault import HIDDEN, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.leases import Leases
from gpuclusters.config.nodes import Node
from gpuclusters.config.rules.rule import Wrong, repeats, rule
from gpuclusters.core.finding import Level
from gpuclusters.lease.model import RecyclePolicy

_ITEMS = (
    *("HGX_FW_GPU_", "HGX_FW_NVSwitch_", "HGX_FW_BMC_", "HGX_FW_CPLD_", "HGX_FW_ERoT_"),
    *("HGX_FW_FPGA_", "HGX_FW_PCIeSwitch_", "HGX_FW_PCIeRetimer_"),
    *("HGX_InfoROM_GPU_", "HGX_InfoROM_NVSwitch_", "HGX_Driver_GPU_"),
)
"""Beginnings of ids in the firmware inventory of HGX BMCs (NVIDIA HGX Redfish API guide)."""
_CHAIN = "exposure.certificate.chain"
_CHARTS = {
    "nginx": ("rke2-ingress-nginx",),
    "traefik": ("rke2-traefik", "rke2-traefik-crd"),
}
"""By class of Ingress the charts of RKE2 that serve it."""


@rule(22, "caas.golden-firmware-empty", "leases")
def full_recycling_has_something_to_compare_with(
    config: CaasConfig, leases: Leases
) -> Iterable[Wrong]:
    full = leases.recycle_policy is RecyclePolicy.FULL
    if full and isinstance(config.hosts, ExistingHosts) and not leases.golden_firmware.versions:
        yield Wrong(
            "golden-firmware.versions",
            "is missing while leases.recycle-policy is full",
            'write accepted versions by item: {HGX_FW_GPU: ["96.00.A5.00.01"]}, or choose reset-only',
        )


@rule(22, "caas.bmc-missing", "nodes")
def firmware_can_be_read(config: CaasConfig, node: Node) -> Iterable[Wrong]:
    if config.leases.recycle_policy is not RecyclePolicy.FULL:
        return
    existing = isinstance(config.hosts, ExistingHosts)
    if existing and node.bmc is None:
        yield Wrong(
            "bmc",
            "is missing while leases.recycle-policy is full",
            "write {url: https://ADDRESS, user: NAME}, or choose reset-only",
        )
    if not existing and node.bmc is not None:
        yield Wrong(
            "bmc", "is stated although the lab has its own", "remove it", show(node.bmc.url)
        )


@rule(22, "caas.bmc-twice", each=["nodes"])
def each_machine_has_its_own_bmc(config: CaasConfig) -> Iterable[Wrong]:
    stated = [(at, node.bmc.url) for at, node in enumerate(config.nodes) if node.bmc is not None]
    for again, first in repeats([url for _, url in stated]):
        yield Wrong(
            ("nodes", stated[again][0], "bmc", "url"),
            f"is also that of nodes[{stated[first][0]}]: its firmware would count for both",
            "write the BMC of this machine",
        )


@rule(22, "caas.firmware-item-unknown", "leases", level=Level.WARN)
def golden_items_are_those_of_a_bmc(_config: CaasConfig, leases: Leases) -> Iterable[Wrong]:
    for item in leases.golden_firmware.versions:
        if not any(item.startswith(known) or known.startswith(item) for known in _ITEMS):
            near = difflib.get_close_matches(item, _ITEMS, n=1)
            yield Wrong(
                ("golden-firmware", "versions", item),
                "is no item that BMCs of HGX boards are known to list; without it every GPU is quarantined",
                f"did you mean {near[0].rstrip('_')}?"
                if near
                else f"they begin with {', '.join(_ITEMS)}",
                f"the key {show(item)}",
            )


@rule(23, "caas.programs-image-missing")
def programs_have_an_image(config: CaasConfig) -> Iterable[Wrong]:
    if not uses_lab(config) and config.programs.image is None:
        yield Wrong(
            "programs.image",
            f"is missing while kubernetes.source is {config.kubernetes.source}",
            "build caas/Dockerfile, push it, and write its name with a digest",
        )


@rule(23, "caas.issuer-missing")
def api_knows_its_issuer(config: CaasConfig) -> Iterable[Wrong]:
    if not uses_lab(config) and config.api.issuer is None:
        yield Wrong(
            "api.issuer",
            f"is missing while kubernetes.source is {config.kubernetes.source}",
            "write the address of your OpenID issuer: https://id.example.com",
        )


@rule(25, "caas.api-without-tls")
def tenants_reach_the_api_over_tls(config: CaasConfig) -> Iterable[Wrong]:
    if config.api.exposure is None and not uses_lab(config):
        yield Wrong(
            "api.exposure",
            "is missing: tenants would send their tokens in clear",
            "write {kind: ingress, ingress-class: nginx, host: api.example.com, certificate: {source: "
            "cert-manager, issuer: NAME}}, or {kind: external} if something that you have ends TLS",
        )


@rule(25, "caas.exposure-in-lab")
def the_lab_exposes_its_own_api(config: CaasConfig) -> Iterable[Wrong]:
    exposure = config.api.exposure
    if isinstance(exposure, None | ExternalExposure):
        return
    if isinstance(config.kubernetes, LabKubernetes):
        yield Wrong(
            "api.exposure",
            "is nothing that the lab has; its API ends TLS itself, with a certificate of the lab",
            "remove it, or write {kind: external} for plain HTTP",
            show(exposure.kind),
        )


@rule(25, "caas.proxies-unknown", "api")
def proxies_are_known(_config: CaasConfig, api: Api) -> Iterable[Wrong]:
    if isinstance(api.exposure, ExternalExposure) and not api.proxies:
        yield Wrong(
            "proxies",
            "is empty while api.exposure.kind is external: all connections would count as one client's",
            "write the networks from which your load balancer calls the API: [10.20.0.0/24]",
        )


@rule(25, "caas.ingress-class-unserved")
def rke2_serves_the_ingress_class(config: CaasConfig) -> Iterable[Wrong]:
    exposure, cluster = config.api.exposure, config.kubernetes
    if not isinstance(exposure, IngressExposure) or not isinstance(cluster, Rke2Kubernetes):
        return
    charts = _CHARTS.get(exposure.ingress_class, ())
    if missing := [chart for chart in charts if chart in cluster.disabled_charts]:
        kept = [chart for chart in cluster.disabled_charts if chart not in charts]
        yield Wrong(
            "api.exposure.ingress-class",
            f"is served by {' and '.join(missing)}, which kubernetes.disabled-charts leaves out",
            f"write kubernetes.disabled-charts: [{', '.join(kept)}], or another class",
        )


@rule(25, "caas.gateway-crds-missing")
def a_gateway_has_its_kinds(config: CaasConfig) -> Iterable[Wrong]:
    made_here = isinstance(config.kubernetes, Rke2Kubernetes)
    if made_here and isinstance(config.api.exposure, GatewayExposure):
        yield Wrong(
            "api.exposure.kind",
            "needs the CRDs of the Gateway API, which a cluster made by RKE2 does not have",
            "write ingress with ingress-class: cilium, or load-balancer",
        )


def _given(api: Api) -> tuple[str, certificate.Chain] | None:
    exposure = api.exposure
    if isinstance(exposure, None | ExternalExposure):
        return None
    if not isinstance(exposure.certificate, GivenCertificate):
        return None
    return exposure.host, certificate.read(exposure.certificate.chain)


@rule(25, "caas.certificate-host", "api")
def the_certificate_is_for_the_host(_config: CaasConfig, api: Api) -> Iterable[Wrong]:
    given = _given(api)
    if given is None:
        return
    host, chain = given
    if not certificate.covers(chain, host):
        known = ", ".join(certificate.names(chain)) or "no DNS name"
        yield Wrong(
            _CHAIN,
            f"is for {known} and not for api.exposure.host",
            "give a certificate for this host, or the host that it is for",
            show(host),
        )


@rule(25, "caas.certificate-chain", "api")
def the_chain_is_in_order(_config: CaasConfig, api: Api) -> Iterable[Wrong]:
    given = _given(api)
    if given is not None and not certificate.is_in_order(given[1]):
        yield Wrong(
            _CHAIN,
            "holds a certificate that the one after it did not sign",
            "write the host's certificate first, then the one that signed it, and so on",
            HIDDEN,
        )


@rule(25, "caas.certificate-expired", "api")
def the_certificate_is_valid(_config: CaasConfig, api: Api) -> Iterable[Wrong]:
    given = _given(api)
    if given is None:
        return
    now = datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.begins(given[1]), certificate.ends(given[1])
    if now >= ends:
        yield Wrong(_CHAIN, "has expired", "give a new one, with its key", f"{ends:%Y-%m-%d}")
    elif now < begins:
        remedy = "give one that is, or wait until then"
        yield Wrong(_CHAIN, "is not valid yet", remedy, f"{begins:%Y-%m-%d}")
