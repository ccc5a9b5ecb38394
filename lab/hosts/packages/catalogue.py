"""Packages that simulated machines can install: `catalogue.yaml`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.hosts.hardware.sysfs import KERNEL

CATALOGUE: Mapping[str, Any] = yaml.load(
    Path(__file__).with_name("catalogue.yaml").read_text(), yaml.CSafeLoader
)
RELEASES: Mapping[str, list[str]] = CATALOGUE["drivers"]
"""NVIDIA's drivers by branch, newest first."""
DEFAULT_BRANCH = "580"
"""What a machine that is made with a driver has: the last branch that knows all simulated GPUs."""
FABRIC_MANAGER = ("nvidia-fabricmanager-595", "595.58.03-1")
"""On HGX machines the fabric manager is pinned to the one of their service VM, so that it comes first."""


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

    @property
    def owns(self) -> str:
        """Packages that own the same files: there is one of them at a time."""
        if self.part in (Part.PREBUILT, Part.DKMS):
            return "modules"
        return "" if self.part is Part.HEADERS else self.part


@cache
def driver_packages(system: str) -> tuple[DriverPackage, ...]:
    """All of an operating system, newest first for each name."""
    found: list[DriverPackage] = []
    for branch, drivers in RELEASES.items():
        for driver in drivers:
            for one in CATALOGUE["driver-packages"][system]:
                if one.get("newest") and driver != drivers[0]:
                    continue
                part = Part(one["part"])
                name, version, stream = (
                    one.get(key, "").format(branch=branch, driver=driver, kernel=KERNEL)
                    for key in ("name", "version", "stream")
                )
                of = "" if part is Part.HEADERS else driver
                brings = tuple(one.get("brings", ()))
                is_open = one.get("open", False)
                found.append(DriverPackage(name, version, part, of, is_open, stream, brings))
    return tuple(dict.fromkeys(found))


def of_the_driver(system: str, have: Mapping[str, str]) -> Iterator[DriverPackage]:
    """Those of the driver among packages with their versions."""
    return (p for p in driver_packages(system) if have.get(p.name) == p.version)


def made_with(passes_gpus_on: bool, condition: str) -> dict[str, str]:  # noqa: FBT001
    """What a machine is made with."""
    if not passes_gpus_on:
        kind = "any-server"
    elif condition == "bare":
        return {}
    else:
        kind = condition
    found = {name: CATALOGUE["ubuntu"][name][0] for name in CATALOGUE[kind]}
    return found | (dict([FABRIC_MANAGER]) if kind == "prepared" else {})
