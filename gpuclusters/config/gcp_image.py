"""`hosts.image` on Google Cloud: what the boot disk of a machine is made from."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.config.base import Section, Text, matches

System = Literal["ubuntu-22.04", "ubuntu-24.04", "rhel-9", "sles-15"]

_PUBLIC: tuple[tuple[str, re.Pattern[str], System], ...] = (
    ("ubuntu-os-cloud", re.compile(r"ubuntu-(?:minimal-)?2204-.*"), "ubuntu-22.04"),
    ("ubuntu-os-cloud", re.compile(r"ubuntu-(?:minimal-)?2404-.*"), "ubuntu-24.04"),
    ("rhel-cloud", re.compile(r"rhel-9-?.*"), "rhel-9"),
    ("suse-cloud", re.compile(r"sles-15-.*"), "sles-15"),
)


ImageName = Annotated[
    Text,
    matches(
        r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
        "is not the name of an image",
        "write it as `gcloud compute images list` prints it, without a path before it",
    ),
]


class PinnedImage(Section):
    """One image, for all machines and for ever."""

    source: Literal["image"]
    """How the image is named."""
    project: ImageName = "ubuntu-os-cloud"
    """Project that has it."""
    name: ImageName
    """Its name, with its date: ubuntu-2404-noble-amd64-v20260812."""
    system: System | None = None
    """Operating system, where the name is not one of a public image."""


class ImageFamily(Section):
    """The newest image of a family when a machine is made; a machine that exists keeps its own."""

    source: Literal["family"]
    """How the image is named."""
    project: ImageName = "ubuntu-os-cloud"
    """Project that has it."""
    family: ImageName
    """Its family: ubuntu-2404-lts-amd64."""
    system: System | None = None
    """Operating system, where the family is not a public one."""


Image = Annotated[PinnedImage | ImageFamily, Field(discriminator="source")]


def public_system(image: PinnedImage | ImageFamily) -> System | None:
    """The operating system of a public image; None for all others."""
    name = image.name if isinstance(image, PinnedImage) else image.family
    for project, pattern, system in _PUBLIC:
        if image.project == project and pattern.fullmatch(name):
            return system
    return None
