"""Helm charts: where one comes from, and how it is installed."""

import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs


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
    def release(self) -> str:
        """The chart's version, as stated or as it stands in a folder or archive; empty if neither says."""
        if self.version is not None:
            return self.version
        path, text = Path(self.reference), b""
        if (file := path / "Chart.yaml").is_file():
            text = file.read_bytes()
        elif path.is_file() and tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                # The first folder is the chart's own name; deeper ones are subcharts.
                own = (n for n in archive.getnames() if n.count("/") == 1)
                name = next((n for n in own if n.endswith("/Chart.yaml")), None)
                found = archive.extractfile(name) if name is not None else None
                text = found.read() if found is not None else b""
        return str((yaml.safe_load(text) or {}).get("version", ""))

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


def install(
    name: str,
    chart: Chart,
    opts: pulumi.ResourceOptions,
    *,
    release: str,
    namespace: pulumi.Input[str],
    values: Mapping[str, Any],
    timeout_seconds: int,
    skip_crds: bool | None = None,
) -> Release:
    """A release under a fixed name: a generated one would be another after each replacement.

    A failed installation is left to be looked at, and what runs is not removed because one node was slow.
    Two releases collide on what is cluster-scoped, so that the old one goes first.
    """
    seconds = f"{timeout_seconds}s"
    own = pulumi.ResourceOptions(
        delete_before_replace=True,
        custom_timeouts=pulumi.CustomTimeouts(create=seconds, update=seconds, delete=seconds),
    )
    return Release(
        name,
        name=release,
        chart=chart.reference,
        version=chart.version,
        repository_opts=RepositoryOptsArgs(repo=chart.repository) if chart.repository else None,
        namespace=namespace,
        values=dict(values),
        timeout=timeout_seconds,
        skip_crds=skip_crds,
        atomic=False,
        cleanup_on_fail=False,
        max_history=5,
        opts=pulumi.ResourceOptions.merge(own, opts),
    )
