"""What Helm keeps about releases in a cluster: reads its records, removes those of a killed run."""

from collections.abc import Iterable

from gpuclusters.gpu_operator.helm_release import Revision, revisions
from gpuclusters.gpu_operator.objects import SECRET
from gpuclusters.kube.objects import KubernetesObjects


class HelmRecords(KubernetesObjects):
    """Helm's records in one cluster."""

    def of(self, namespace: str, release: str) -> list[Revision]:
        """The revisions of a release, oldest first."""
        tried = f"read what Helm has recorded about {namespace}/{release}"
        query = [("labelSelector", f"owner=helm,name={release}")]
        answer = self._answer("GET", SECRET.path(namespace), tried, query=query)
        return revisions(answer.get("items") or (), release)

    def forget(self, namespace: str, secrets: Iterable[str]) -> None:
        """Remove these records, and nothing else; absent is fine."""
        for name in secrets:
            self.delete(SECRET, name, namespace)
