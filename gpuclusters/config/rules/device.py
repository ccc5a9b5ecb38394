"""Row 8: CDI specs that containerd and Kata can load and match."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import Flaw, show
from gpuclusters.config.rules.rule import rule
from gpuclusters.domain.versions import CDI_ANNOTATIONS, CDI_RELEASES, older


@rule(8, needs=["device_access"])
def cdi_kind_is_the_resource_name(config: CaasConfig) -> Iterable[Flaw]:
    """Kata builds a CDI name out of the resource's name and the device's id; nothing else resolves."""
    access = config.device_access
    if access.cdi_kind != access.resource_name:
        yield Flaw(
            ("device-access", "cdi-kind"),
            f"differs from resource-name, which is {access.resource_name}: Kata would look for "
            f"{access.resource_name}=1 and find nothing",
            show(access.cdi_kind),
            f"write {access.resource_name}, or leave both out",
        )


@rule(8, needs=["versions"])
def cdi_version_exists(config: CaasConfig) -> Iterable[Flaw]:
    """The version of the CDI specs is one that was released."""
    if config.versions.cdi not in CDI_RELEASES:
        yield Flaw(
            ("versions", "cdi"),
            "is not a released version of CDI",
            show(config.versions.cdi),
            f"write one of {', '.join(CDI_RELEASES)}",
        )


@rule(8, needs=["versions"])
def cdi_version_has_what_specs_use(config: CaasConfig) -> Iterable[Flaw]:
    """Specs name devices by module number (from 0.5.0 on) and carry annotations (from 0.6.0 on)."""
    version = config.versions.cdi
    if version in CDI_RELEASES and older(version, CDI_ANNOTATIONS):
        yield Flaw(
            ("versions", "cdi"),
            'is older than what the specs use: annotations, and device names "1" to "8"',
            show(version),
            "write 0.6.0 or newer, or leave it out",
        )


RULES = (
    cdi_kind_is_the_resource_name,
    cdi_version_exists,
    cdi_version_has_what_specs_use,
)
