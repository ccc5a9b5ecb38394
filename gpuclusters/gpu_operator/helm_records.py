"""What Helm keeps about releases in a cluster: reads its records, removes those of a killed run."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.gpu_operator.helm_release import Revision, revisions
from gpuclusters.gpu_operator.objects import SECRET
from gpuclusters.kube.objects import KubernetesObjects, path_of


class HelmRecords(KubernetesObjects):
    """Helm's records in one cluster."""

    def of(self, namespace: str, release: str) -> list[Revision]:
        """The revisions of a release, oldest first."""
        tried = f"read what Helm has recorded about {namespace}/{release}"
        query = [("labelSelector", f"owner=helm,name={release}")]
        status, answer = self._call("GET", path_of(SECRET, namespace), tried, query=query)
        if status >= 300:
            raise self._refused(tried, status, answer)
        return revisions(answer.get("items") or (), release)

    def forget(self, namespace: str, secrets: Iterable[str]) -> None:
        """Remove these records, and nothing else; absent is fine."""
        for name in secrets:
            self.delete(SECRET, name, namespace)
