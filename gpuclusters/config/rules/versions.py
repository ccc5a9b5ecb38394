"""Row 2: fabric manager and guest driver are pinned, and of exactly the same version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, Flaw, show
from gpuclusters.config.kata import GuestImage
from gpuclusters.config.plan import guest_driver
from gpuclusters.config.rules.rule import rule
from gpuclusters.domain.versions import KATA_RELEASES, parse_release


@rule(2, needs=["versions"])
def versions_are_pinned(config: CaasConfig) -> Iterable[Flaw]:
    """Every version is a number: `latest` means another fabric manager after each installation."""
    versions: Mapping[str, str | None] = {
        "kata": config.versions.kata,
        "guest-driver": config.versions.guest_driver,
        "fabric-manager": config.versions.fabric_manager,
    }
    for key, value in versions.items():
        if value is not None and parse_release(value) is None:
            example = KATA_RELEASES["4.1.0"].guest_driver if key != "kata" else "4.1.0"
            yield Flaw(
                ("versions", key),
                "is not pinned to a version",
                show(value),
                f"write all of its numbers in quotes, for example {example}",
            )


@rule(2, needs=["versions"])
def fabric_manager_is_of_the_guest_drivers_version(config: CaasConfig) -> Iterable[Flaw]:
    """Fabric manager and guest driver are of exactly the same version, else CUDA does not start (802)."""
    driver = guest_driver(config)
    manager = config.versions.fabric_manager
    if driver is None or parse_release(manager) is None or parse_release(driver) is None:
        return
    if manager != driver:
        yield Flaw(
            ("versions", "fabric-manager"),
            f"differs from the guest's GPU driver, which is {driver}",
            show(manager),
            f"write {driver}, and install exactly that one in the service VM",
        )


@rule(2, needs=["versions", "kata"])
def guest_driver_is_the_one_in_the_image(config: CaasConfig) -> Iterable[Flaw]:
    """Kata's own guest image holds one driver; another needs an image of your own."""
    versions = config.versions
    release = KATA_RELEASES.get(versions.kata)
    custom = config.kata.guest_image is GuestImage.CUSTOM
    if versions.guest_driver is None and (custom or release is None):
        if parse_release(versions.kata) is not None:
            why = "your own guest image" if custom else f"Kata {versions.kata}"
            yield Flaw(
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
        yield Flaw(
            ("versions", "guest-driver"),
            f"is not in the guest image of Kata {versions.kata}, which has {release.guest_driver}",
            show(versions.guest_driver),
            f"write {release.guest_driver}, or set kata.guest-image: custom and build an image",
        )


RULES = (
    versions_are_pinned,
    fabric_manager_is_of_the_guest_drivers_version,
    guest_driver_is_the_one_in_the_image,
)
