"""The CustomResourceDefinitions of the operator's chart: applied before the release, of its very version.

Helm installs a chart's `crds/` once and never again. A cluster that was upgraded keeps the old ones, the
API server prunes fields that they do not know, and the policy is "ready" all the same
(edgelesssys/contrast#2599).
So this program applies them, and the release skips them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.converge import Clock
from gpuclusters.core.finding import refused
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.gpu_operator.objects import CRD

MANAGER = "gpu-clusters-crds"
ESTABLISH_SECONDS = 60.0
POLL_SECONDS = 0.3
_MARK = "gpu-clusters.dev/content"


class CrdInputs(BaseModel):
    """Inputs of the definitions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    reference: str = Field(min_length=1)
    """Chart: a folder, an archive, or a name within `repository`."""
    version: str = ""
    """Release of the chart; may be empty for a folder or archive."""
    repository: str = ""
    content: str = ""
    """Digest of a folder or archive, so that another chart at the same path is another input."""
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """What the archive must be; empty: as the repository's index says."""
    with_nfd: bool = True
    """Whether the release brings node feature discovery along."""

    @property
    def natural_id(self) -> str:
        """`cluster/gpu-operator-crds`."""
        return f"{self.cluster}/gpu-operator-crds"


class Definitions(Protocol):
    """The part of a cluster that this needs."""

    @property
    def target(self) -> str:
        """The API server as errors name it."""

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, or None."""

    def take(self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        """Server-side apply that takes fields from other managers."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Which definitions are there."""

    names: tuple[str, ...]
    stale: tuple[str, ...] = ()
    """Those that are gone or that somebody replaced by others."""

    def outputs(self) -> dict[str, Any]:
        """What the resource tells."""
        return {"names": list(self.names), "stale": list(self.stale)}


def definitions(documents: Iterable[Mapping[str, Any]], *, with_nfd: bool) -> list[dict[str, Any]]:
    """The definitions among a chart's documents, by name.

    Raises:
        Refused: it has none of the operator's own.
    """
    found = {
        str(document["metadata"]["name"]): dict(document)
        for document in documents
        if document and document.get("kind") == CRD.kind
    }
    if "clusterpolicies.nvidia.com" not in found:
        raise refused(
            "the GPU Operator's chart",
            "crds.not-the-operator",
            f"its crds/ have no clusterpolicies.nvidia.com (found {', '.join(found) or 'nothing'})",
            "check that the chart is gpu-operator, as NVIDIA releases it",
        )
    return [
        body
        for name, body in sorted(found.items())
        if with_nfd or not name.endswith(".nfd.k8s-sigs.io")
    ]


def apply(wanted: Sequence[Mapping[str, Any]], cluster: Definitions, clock: Clock) -> Applied:
    """Apply all, and wait until the API server serves them.

    Raises:
        Refused: it does not serve one in time.
    """
    for body in wanted:
        cluster.take(CRD, _marked(body), manager=MANAGER)
    started = clock.now()
    while waiting := [name for name in _names(wanted) if not _is_served(cluster.get(CRD, name))]:
        if clock.now() - started > ESTABLISH_SECONDS:
            raise refused(
                f"{cluster.target}: {', '.join(waiting)}",
                "crds.not-served",
                f"not served {ESTABLISH_SECONDS:g} s after it was applied",
                "look at its conditions with `kubectl get crd NAME -o yaml`, then run again",
            )
        clock.sleep(POLL_SECONDS)
    return Applied(tuple(_names(wanted)))


def observe(names: Sequence[str], marks: Mapping[str, str], cluster: Definitions) -> Applied | None:
    """Which of the definitions that were applied are still those; None if none is left."""
    live = {name: cluster.get(CRD, name) for name in names}
    if not any(live.values()):
        return None
    stale = [n for n, body in live.items() if body is None or _mark_of(body) != marks.get(n)]
    return Applied(tuple(names), tuple(sorted(stale)))


def marks(wanted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By name, what identifies the content that was applied."""
    return {str(body["metadata"]["name"]): _digest(body) for body in wanted}


def _names(wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(body["metadata"]["name"]) for body in wanted]


def _marked(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), _MARK: _digest(body)}
    kept = {key: metadata[key] for key in ("name", "labels") if metadata.get(key)}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {**kept, "annotations": annotations},
        "spec": body["spec"],
    }


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body["spec"], sort_keys=True).encode()).hexdigest()[:16]


def _mark_of(body: Mapping[str, Any]) -> str:
    return str((body["metadata"].get("annotations") or {}).get(_MARK, ""))


def _is_served(body: Mapping[str, Any] | None) -> bool:
    conditions = ((body or {}).get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
