"""What the decisions need from the outside world, by role. The rooms `host` and `kube` fill these in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class ClusterObjects(Protocol):
    """Objects of one Kubernetes cluster, as plain mappings. Absence is None."""

    @property
    def target(self) -> str:
        """The API server as errors name it."""

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, or None if it or its kind does not exist."""

    def list(
        self, kind: ObjectKind, namespace: str = "", *, labels: str = ""
    ) -> Sequence[dict[str, Any]]:
        """All objects of the kind that a selector of labels selects; none if the kind does not exist."""

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of a cluster-scoped object; takes no field from another manager."""

    def take(self, kind: ObjectKind, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        """Server-side apply of a cluster-scoped object that takes fields from other managers."""

    def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object; one of this name is a failure."""

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Delete an object with the pods that it owns, and wait for their end; absent is fine."""

    def log(self, namespace: str, pod: str, container: str) -> str:
        """What a container printed."""

    def ask(
        self, namespace: str, service: str, port: int, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """A JSON answer of a service inside the cluster, through the API server."""

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        """Dry-run creation: None if the server would accept the pod, else why it refused."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """Where a kind lives in the Kubernetes API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def body(self, name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:
        """How an object of the kind begins."""
        named = {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": named}

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Where on every API server all of the kind are, an object of it, or a part of that."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join([root + inside, self.plural, *filter(None, (name, subresource))])


def condition(body: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """A condition of its status; empty if there is none. Case does not count."""
    conditions = ((body or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if str(c.get("type", "")).lower() == kind.lower()), {})


def holds(body: Mapping[str, Any] | None, kind: str) -> bool:
    """Whether a condition of its status is True."""
    return condition(body, kind).get("status") == "True"
