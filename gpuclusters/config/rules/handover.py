"""Rows 22 and 23: what a hand-over compares with, and what the programs in the cluster need."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding
from gpuclusters.lease.model import RecyclePolicy


@rule(22, "caas.golden-firmware-empty")
def full_recycling_has_something_to_compare_with(config: CaasConfig) -> Iterable[Finding]:
    leases = config.leases
    if not isinstance(config.hosts, ExistingHosts):
        return
    if leases.recycle_policy is RecyclePolicy.FULL and not leases.golden_firmware.versions:
        yield finding(
            ("leases", "golden-firmware", "versions"),
            "is missing while leases.recycle-policy is full",
            NOTHING,
            'write accepted versions by item: {HGX_FW_GPU: ["96.00.A5.00.01"]}, or choose reset-only',
        )


@rule(22, "caas.golden-item-empty")
def golden_items_have_versions(config: CaasConfig) -> Iterable[Finding]:
    for item, versions in config.leases.golden_firmware.versions.items():
        if not versions:
            yield finding(
                ("leases", "golden-firmware", "versions", item),
                "accepts no version",
                show(versions),
                "write at least one, or remove the item",
            )


@rule(22, "caas.bmc-missing", each=["nodes"])
def firmware_can_be_read(config: CaasConfig) -> Iterable[Finding]:
    if config.leases.recycle_policy is not RecyclePolicy.FULL:
        return
    for position, node in enumerate(config.nodes):
        existing = isinstance(config.hosts, ExistingHosts)
        if existing and node.bmc is None:
            yield finding(
                ("nodes", position, "bmc"),
                "is missing while leases.recycle-policy is full",
                NOTHING,
                "write {url: https://ADDRESS, user: NAME}, or choose reset-only",
            )
        if not existing and node.bmc is not None:
            yield finding(
                ("nodes", position, "bmc"),
                "is stated although the lab has its own",
                show(node.bmc.url),
                "remove it",
            )


@rule(23, "caas.programs-image-missing")
def programs_have_an_image(config: CaasConfig) -> Iterable[Finding]:
    if not uses_lab(config) and config.programs.image is None:
        yield finding(
            ("programs", "image"),
            f"is missing while kubernetes.source is {config.kubernetes.source}",
            NOTHING,
            "build caas/Dockerfile, push it, and write its name with a digest",
        )


@rule(23, "caas.issuer-missing")
def api_knows_its_issuer(config: CaasConfig) -> Iterable[Finding]:
    if not uses_lab(config) and config.api.issuer is None:
        yield finding(
            ("api", "issuer"),
            f"is missing while kubernetes.source is {config.kubernetes.source}",
            NOTHING,
            "write the address of your OpenID issuer: https://id.example.com",
        )
