"""Row 2: fabric manager and guest driver are pinned, and of exactly the same version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.kata import GuestImage
from gpuclusters.config.plan import guest_driver
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding
from gpuclusters.domain.versions import KATA_RELEASES, parse_release


@rule(2, "caas.version-not-pinned")
def versions_are_pinned(config: CaasConfig) -> Iterable[Finding]:
    versions: Mapping[str, str | None] = {
        "kata": config.versions.kata,
        "guest-driver": config.versions.guest_driver,
        "fabric-manager": config.versions.fabric_manager,
    }
    for key, value in versions.items():
        if value is not None and parse_release(value) is None:
            example = KATA_RELEASES["4.1.0"].guest_driver if key != "kata" else "4.1.0"
            yield finding(
                ("versions", key),
                "is not pinned to a version",
                show(value),
                f"write all of its numbers in quotes, for example {example}",
            )


@rule(2, "caas.fabric-manager-version")
def fabric_manager_is_of_the_guest_drivers_version(config: CaasConfig) -> Iterable[Finding]:
    driver = guest_driver(config)
    manager = config.versions.fabric_manager
    if driver is None or parse_release(manager) is None or parse_release(driver) is None:
        return
    if manager != driver:
        yield finding(
            ("versions", "fabric-manager"),
            f"differs from the guest's GPU driver, which is {driver}",
            show(manager),
            f"write {driver}, and install exactly that one in the service VM",
        )


@rule(2, "caas.guest-driver-version")
def guest_driver_is_the_one_in_the_image(config: CaasConfig) -> Iterable[Finding]:
    versions = config.versions
    release = KATA_RELEASES.get(versions.kata)
    custom = config.kata.guest_image is GuestImage.CUSTOM
    if versions.guest_driver is None and (custom or release is None):
        if parse_release(versions.kata) is not None:
            why = "your own guest image" if custom else f"Kata {versions.kata}"
            yield finding(
                ("versions", "guest-driver"),
                f"is missing, and which driver {why} holds is not known",
                NOTHING,
                "write the version of the NVIDIA driver in the guest image",
            )
    elif (
        release is not None
        and not custom
        and versions.guest_driver
        not in (
            None,
            release.guest_driver,
        )
    ):
        yield finding(
            ("versions", "guest-driver"),
            f"is not in the guest image of Kata {versions.kata}, which has {release.guest_driver}",
            show(versions.guest_driver),
            f"write {release.guest_driver}, or set kata.guest-image: custom and build an image",
        )
