"""What a proof asks of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gpuclusters.domain.ports import ClusterObjects, ObjectKind


class JobCluster(ClusterObjects, Protocol):
    """A cluster in which Jobs are run, read and removed again."""

    def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object; one of this name is a failure."""

    def remove(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Delete an object and all that it owns, and wait until they are gone; absent is fine."""

    def log(self, namespace: str, pod: str, container: str) -> str:
        """What a container printed."""

    def ask(
        self, namespace: str, service: str, port: int, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """A JSON answer of a service inside the cluster, through the API server."""
