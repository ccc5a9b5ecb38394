"""Where a Helm chart comes from: a registry, a file beside the stack, the lab, or nowhere."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.config.base import Section, Text, refusal

_SHA256 = re.compile(r"[0-9a-f]{64}")


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise refusal(
            "is not a SHA-256 checksum", "write the 64 digits that `sha256sum FILE` prints first"
        )
    return value


def _registry(value: str) -> str:
    if not value.startswith(("oci://", "https://")):
        raise refusal(
            "is neither an OCI reference nor an https address",
            "write oci://REGISTRY/PATH/CHART or the https address of a repository",
        )
    return value


def _archive(value: str) -> str:
    if not value.endswith(".tgz"):
        raise refusal("is not the archive of a chart", "write the .tgz that `helm pull` made")
    return value


Sha256 = Annotated[Text, AfterValidator(_sha256)]


class RegistryChart(Section):
    """A chart that Helm fetches."""

    source: Literal["registry"]
    """Where the chart comes from."""
    repository: Annotated[Text, AfterValidator(_registry)] | None = None
    """A mirror, `oci://` or `https://`; by default the project's own."""


class FileChart(Section):
    """A chart that lies beside the stack: no registry is asked."""

    source: Literal["file"]
    """Where the chart comes from."""
    path: Annotated[Text, AfterValidator(_archive)]
    """The archive, from the project's folder: charts/kata-deploy-4.1.0.tgz."""
    sha256: Sha256
    """Its checksum; another file is refused at preview."""


class LabChart(Section):
    """The lab's stand-in for the chart: same values, same refusals, nothing installed for real."""

    source: Literal["lab"]
    """Where the chart comes from."""


class NoChart(Section):
    """Somebody else has installed it, and keeps it in step with this configuration."""

    source: Literal["none"]
    """Where the chart comes from."""


Chart = Annotated[RegistryChart | FileChart | LabChart | NoChart, Field(discriminator="source")]
