"""What Helm keeps about a release: one Secret per revision, of which this reads status, chart and manifest.

Helm writes `sh.helm.release.v1.<name>.v<revision>` with labels `owner=helm`, `name`, `status` and
`version`, and the release as base64 of JSON, gzipped if it is long (`pkg/storage/driver/{secrets,util}.go`).
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator.objects import SECRET

_MOST_BYTES = 64 * 1024 * 1024
"""Of a release that Helm has packed: far more than a Secret of a MiB can hold in good faith."""


@dataclass(frozen=True, slots=True)
class Revision:
    secret: str
    number: int
    status: str
    """`deployed`, `superseded`, `failed`, `pending-install`, `pending-upgrade`, …"""
    chart_version: str
    """Empty if the record cannot be read."""
    manifest: str | None = None
    """None if it cannot."""

    @property
    def is_pending(self) -> bool:
        """Whether Helm takes the release for being worked on, and refuses to touch it."""
        return self.status.startswith("pending-")


def revisions(cluster: ClusterObjects, namespace: str, release: str) -> list[Revision]:
    """The revisions of a release as Helm has recorded them, oldest first."""
    secrets = cluster.list(SECRET, namespace, labels=f"owner=helm,name={release}")
    return sorted(map(_revision, secrets), key=lambda revision: revision.number)


def _revision(secret: Mapping[str, Any]) -> Revision:
    labels, kept = secret["metadata"]["labels"], _unpacked(secret)
    chart = ((kept.get("chart") or {}).get("metadata") or {}).get("version") or ""
    return Revision(
        secret=str(secret["metadata"]["name"]),
        number=int(labels.get("version", 0)),
        status=str(labels.get("status", "")),
        chart_version=str(chart),
        manifest=str(kept["manifest"]) if "manifest" in kept else None,
    )


def _unpacked(secret: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is packed into the Secret; empty where it is not in the form that Helm keeps."""
    try:
        data = base64.b64decode(base64.b64decode(secret["data"]["release"]), validate=True)
        if data.startswith(b"\x1f\x8b"):
            decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
            data = decoder.decompress(data, _MOST_BYTES)
            if decoder.unconsumed_tail:
                return {}
        document = json.loads(data)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error):
        return {}
    return document if isinstance(document, Mapping) else {}
