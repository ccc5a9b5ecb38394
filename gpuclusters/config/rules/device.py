"""Row 8: CDI specs that containerd and Kata can load and match."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding
from gpuclusters.domain.versions import CDI_ANNOTATIONS, CDI_RELEASES, older


@rule(8, "caas.cdi-kind")
def cdi_kind_is_the_resource_name(config: CaasConfig) -> Iterable[Finding]:
    access = config.device_access
    if access.cdi_kind != access.resource_name:
        yield finding(
            ("device-access", "cdi-kind"),
            f"differs from resource-name, which is {access.resource_name}: Kata would look for "
            f"{access.resource_name}=1 and find nothing",
            show(access.cdi_kind),
            f"write {access.resource_name}, or leave both out",
        )


@rule(8, "caas.cdi-version-unknown")
def cdi_version_exists(config: CaasConfig) -> Iterable[Finding]:
    if config.versions.cdi not in CDI_RELEASES:
        yield finding(
            ("versions", "cdi"),
            "is not a released version of CDI",
            show(config.versions.cdi),
            f"write one of {', '.join(CDI_RELEASES)}",
        )


@rule(8, "caas.cdi-version-old")
def cdi_version_has_what_specs_use(config: CaasConfig) -> Iterable[Finding]:
    version = config.versions.cdi
    if version in CDI_RELEASES and older(version, CDI_ANNOTATIONS):
        yield finding(
            ("versions", "cdi"),
            'is older than what the specs use: annotations, and device names "1" to "8"',
            show(version),
            "write 0.6.0 or newer, or leave it out",
        )
