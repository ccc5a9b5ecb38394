"""`versions` of a `usernetes` cluster: a set of the dated table, and where it is departed from."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from gpuclusters.config.base import Flag, PinnedImage, Section, Text, checked, refusal

_TAG = re.compile(r"gen[23]-v[0-9]{8}\.[0-9]{1,3}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBERS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}")
_IMAGE_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def _tag(value: str) -> str:
    if not _TAG.fullmatch(value):
        raise refusal(
            "is not a tag of Usernetes that this program can run",
            "write one like gen3-v20260902.0; generation 1 and branches are not built in this version",
        )
    return value


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise refusal("is not a SHA-256", "write the 64 digits that `sha256sum` prints")
    return value


def _place(value: str) -> str:
    if not value.startswith(("https://", "/")) or any(character.isspace() for character in value):
        raise refusal(
            "is not where a file is",
            "write an address that begins with https://, or a path that the file has on every host",
        )
    return value


def _numbers(value: str) -> str:
    if not _NUMBERS.fullmatch(value):
        raise refusal(
            "is not a version of a package",
            'write its three numbers in quotes, without what Debian puts around them: "29.7.2"',
        )
    return value


def _release(value: str) -> str:
    if not value.startswith("v") or not _NUMBERS.fullmatch(value[1:]):
        raise refusal("is not a release", "write v and its three numbers, like v1.37.0")
    return value


def _image_tag(value: str) -> str:
    if not _IMAGE_TAG.fullmatch(value) or value == "latest":
        raise refusal("is not a tag that stays", "write one like 4.6.0-4.8.3-distroless")
    return value


Tag = Annotated[Text, AfterValidator(_tag)]
Sha256 = Annotated[Text, AfterValidator(_sha256)]
FilePlace = Annotated[Text, AfterValidator(_place)]
PackageVersion = Annotated[Text, AfterValidator(_numbers)]
ReleaseTag = Annotated[Text, AfterValidator(_release)]
ImageTag = Annotated[Text, AfterValidator(_image_tag)]


class VersionsName(StrEnum):
    """A set of versions that go together (docs/usernetes.md)."""

    CURRENT = "current"
    """The newest of everything that was read about."""
    PROVEN = "proven"
    """The nearest to what ran on V100s in February 2025 that can still be had."""


class VersionOverrides(Section):
    """Where single versions differ from the set. What is not stated is the set's."""

    usernetes: Tag | None = None
    """Tag of Usernetes; its own Dockerfile decides Kubernetes and the node image, so state these too."""
    usernetes_sha256: Sha256 | None = None
    """SHA-256 of the tag's source archive, which every host compares. It has to be stated: this version
    has not seen the archives. docs/usernetes.md says how it is measured."""
    usernetes_url: FilePlace | None = None
    """Where the source archive is, an address or a path on every host; by default GitHub's archive of
    the tag."""
    kubernetes: ReleaseTag | None = None
    """Kubernetes in the node image."""
    node_image: Annotated[PinnedImage | None, checked(49)] = None
    """What the tag's Dockerfile starts from, by digest. The Dockerfile itself is left as it is."""
    docker: PackageVersion | None = None
    """Docker Engine, rootless extras included."""
    container_toolkit: PackageVersion | None = None
    """All four packages of NVIDIA's container toolkit, on the host and in the node image."""
    device_plugin: ReleaseTag | None = None
    """NVIDIA's device plugin."""
    dcgm_exporter: ImageTag | None = None
    """Tag of NVIDIA's DCGM exporter, for metrics."""
    slirp4netns: Annotated[Flag | None, checked(49)] = None
    """Whether slirp4netns is installed beside Docker. Always; false is refused."""
