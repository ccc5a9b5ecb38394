"""Where a Helm chart comes from: every component that installs one says it the same way."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def content(self) -> str:
        """Digest of a folder or archive on this machine; empty for a chart that lies elsewhere.

        Helm compares versions, so that another chart of the same version would change nothing.
        """
        path = Path(self.reference)
        if path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            inner = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(path).as_posix()}\0{inner}\n".encode())
        return digest.hexdigest() if path.is_dir() else ""
