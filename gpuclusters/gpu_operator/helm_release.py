"""What Helm keeps about a release: one Secret per revision, of which this reads status and chart.

Helm writes `sh.helm.release.v1.<name>.v<revision>` with labels `owner=helm`, `name`, `status` and
`version`, and the release as base64 of gzipped JSON (`pkg/storage/driver/{secrets,util}.go`).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Revision:
    secret: str
    number: int
    status: str
    """`deployed`, `superseded`, `failed`, `pending-install`, `pending-upgrade`, …"""
    chart_version: str
    """Empty if the record cannot be read."""

    @property
    def is_pending(self) -> bool:
        """Whether Helm takes the release for being worked on, and refuses to touch it."""
        return self.status.startswith("pending-")


def revisions(secrets: Iterable[Mapping[str, Any]], release: str) -> list[Revision]:
    """The revisions of a release among the Secrets of its namespace, oldest first."""
    found = []
    for secret in secrets:
        name, labels = secret["metadata"]["name"], secret["metadata"].get("labels") or {}
        if (labels.get("owner"), labels.get("name")) == ("helm", release):
            number, status = int(labels.get("version", 0)), str(labels.get("status", ""))
            found.append(Revision(str(name), number, status, _chart_version(secret)))
    return sorted(found, key=lambda revision: revision.number)


def installed_version(known: Iterable[Revision]) -> str:
    """Version of the chart that was installed last, whether it came up or not; empty if none is known."""
    versions = [r.chart_version for r in known if r.status in ("deployed", "failed", "superseded")]
    return versions[-1] if versions else ""


def _chart_version(secret: Mapping[str, Any]) -> str:
    try:
        record = base64.b64decode((secret.get("data") or {})["release"])
        document = json.loads(gzip.decompress(base64.b64decode(record)))
        return str(document["chart"]["metadata"]["version"])
    except (KeyError, TypeError, ValueError, binascii.Error, OSError, EOFError, zlib.error):
        return ""
