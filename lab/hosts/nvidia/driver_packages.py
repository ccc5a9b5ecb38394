"""Packages of NVIDIA's driver that simulated machines can install, by operating system.

Names after Ubuntu's archive, NVIDIA's repository for the RHEL family and SUSE's for SLES. As in the archives,
prebuilt modules are there for the newest driver of a branch alone, and for one kernel.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from lab.hosts.hardware.sysfs import KERNEL

RELEASES: Mapping[str, tuple[str, ...]] = {
    "580": ("580.178.04", "580.126.09"),
    "595": ("595.91.07", "595.58.03"),
}
"""Drivers by branch, newest first."""
DEFAULT_BRANCH = "580"
"""What a machine that is made with a driver has: the last branch that knows all simulated GPUs."""


class Part(StrEnum):
    PREBUILT = "prebuilt"
    """Signed kernel modules for one kernel."""
    DKMS = "dkms"
    """Sources of kernel modules, built on the machine: they need headers and are not signed."""
    USERLAND = "userland"
    LIBRARIES = "libraries"
    FABRIC_MANAGER = "fabric-manager"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class DriverPackage:
    name: str
    version: str
    part: Part
    driver: str = ""
    """The driver's version in it."""
    is_open: bool = False
    stream: str = ""
    """The module stream of dnf that it belongs to."""
    brings: tuple[str, ...] = ()
    """Packages of the same driver that come with it."""


def packages(system: str) -> tuple[DriverPackage, ...]:
    """All of an operating system, newest first for each name."""
    return _all(system)


@cache
def _all(system: str) -> tuple[DriverPackage, ...]:
    makers = {"ubuntu": _ubuntu, "rocky": _rocky, "sles": _sles}
    return tuple(makers[system]())


def find(system: str, name: str, version: str = "") -> DriverPackage | None:
    """The newest package of a name whose version fits; `version` may be a pattern, or the driver's own."""
    for package in packages(system):
        fits = not version or fnmatch.fnmatchcase(package.version, version)
        if package.name == name and fits:
            return package
    return None


def installed(system: str, have: Mapping[str, str]) -> Iterator[DriverPackage]:
    for package in packages(system):
        if have.get(package.name) == package.version:
            yield package


def _ubuntu() -> Iterator[DriverPackage]:
    yield DriverPackage(f"linux-headers-{KERNEL}", "6.14.0-37.37~24.04.1", Part.HEADERS)
    for branch, drivers in RELEASES.items():
        for number, driver in enumerate(drivers):
            version = f"{driver}-0ubuntu0.24.04.1"
            utilities = f"nvidia-utils-{branch}-server"
            yield DriverPackage(utilities, version, Part.USERLAND, driver)
            yield DriverPackage(
                f"nvidia-fabricmanager-{branch}", f"{driver}-1", Part.FABRIC_MANAGER, driver
            )
            for is_open in (False, True):
                server = f"{branch}-server{'-open' if is_open else ''}"
                libraries = f"nvidia-headless-no-dkms-{server}"
                yield DriverPackage(libraries, version, Part.LIBRARIES, driver, is_open)
                yield DriverPackage(f"nvidia-dkms-{server}", version, Part.DKMS, driver, is_open)
                if number == 0:
                    yield DriverPackage(
                        f"linux-modules-nvidia-{server}-{KERNEL}",
                        "6.14.0-37.37~24.04.1+1",
                        Part.PREBUILT,
                        driver,
                        is_open,
                    )


def _rocky() -> Iterator[DriverPackage]:
    yield DriverPackage(f"kernel-devel-{KERNEL}", "1.el9", Part.HEADERS)
    for branch, drivers in RELEASES.items():
        for driver in drivers:
            version = f"{driver}-1.el9"
            for is_open in (False, True):
                stream = f"{branch}-{'open' if is_open else 'dkms'}"
                modules = f"kmod-nvidia-{'open' if is_open else 'latest'}-dkms"
                yield DriverPackage(
                    "nvidia-open" if is_open else "cuda-drivers",
                    version,
                    Part.LIBRARIES,
                    driver,
                    is_open,
                    stream,
                    brings=(modules, "nvidia-driver-cuda"),
                )
                yield DriverPackage(modules, version, Part.DKMS, driver, is_open, stream)
                yield DriverPackage(
                    "nvidia-driver-cuda", version, Part.USERLAND, driver, is_open, stream
                )
                yield DriverPackage(
                    "nvidia-fabricmanager", version, Part.FABRIC_MANAGER, driver, is_open, stream
                )


def _sles() -> Iterator[DriverPackage]:
    yield DriverPackage("kernel-default-devel", "6.4.0-150700.51.1", Part.HEADERS)
    for drivers in RELEASES.values():
        for number, driver in enumerate(drivers):
            yield DriverPackage("nvidia-compute-utils-G06", f"{driver}-1", Part.USERLAND, driver)
            yield DriverPackage("nvidia-fabricmanager", f"{driver}-1", Part.FABRIC_MANAGER, driver)
            yield DriverPackage(
                "nvidia-driver-G06-kmp-default", f"{driver}_k6.4.0-1", Part.DKMS, driver
            )
            if number == 0:
                yield DriverPackage(
                    "nvidia-open-driver-G06-signed-kmp-default",
                    f"{driver}_k6.4.0_150700.51-1",
                    Part.PREBUILT,
                    driver,
                    is_open=True,
                )


_ONE_OF: Mapping[Part, str] = {
    Part.PREBUILT: "modules",
    Part.DKMS: "modules",
    Part.USERLAND: "userland",
    Part.LIBRARIES: "libraries",
    Part.FABRIC_MANAGER: "fabric-manager",
}
"""Packages that own the same files: there is one of them at a time."""


def with_new(system: str, have: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """What a machine has after these were installed: those that they conflict with go."""
    then = {**have, **new}
    taken = {_ONE_OF.get(p.part) for p in installed(system, new)} - {None}
    for package in installed(system, have):
        if _ONE_OF.get(package.part) in taken and package.name not in new:
            then.pop(package.name, None)
    return then
