"""Where a Helm chart comes from: a registry, a file beside the stack, the lab, or nowhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.core.section import Section, Sha256, Text, matches


class RegistryChart(Section):
    """A chart that Helm fetches."""

    source: Literal["registry"]
    """Where the chart comes from."""
    repository: (
        Annotated[
            Text,
            matches(
                "(oci|https)://.*",
                "is neither an OCI reference nor an https address",
                "write oci://REGISTRY/PATH/CHART or the https address of a repository",
            ),
        ]
        | None
    ) = None
    """A mirror, `oci://` or `https://`; by default the project's own."""


class FileChart(Section):
    """A chart that lies beside the stack: no registry is asked."""

    source: Literal["file"]
    """Where the chart comes from."""
    path: Annotated[
        Text,
        matches(
            r".*\.tgz", "is not the archive of a chart", "write the .tgz that `helm pull` made"
        ),
    ]
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
