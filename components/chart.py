"""Where a Helm chart comes from: every component that installs one says it the same way."""

from __future__ import annotations

from dataclasses import dataclass

from pulumi_kubernetes.helm.v3 import RepositoryOptsArgs


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Where a chart comes from: a reference that Helm resolves, or a folder or archive on this machine."""

    reference: str
    """`oci://…`, a path, or a name within `repository`."""
    version: str | None = None
    """None for a path, whose version stands in the chart."""
    repository: str | None = None
    """Address of a repository that is not OCI."""

    @property
    def repository_options(self) -> RepositoryOptsArgs | None:
        """What a Helm release takes as its repository; None where the reference says it all."""
        return RepositoryOptsArgs(repo=self.repository) if self.repository else None
