"""Where a proof runs: its namespace and its programs, made before and taken away after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from gpuclusters.domain.ports import ClusterObjects, ObjectKind
from gpuclusters.proof import pod
from gpuclusters.proof.pod import CONFIG_MAP, JOB, LABEL
from gpuclusters.tenancy.objects import NAMESPACE


@contextmanager
def temporary_namespace(
    cluster: JobCluster,
    space: str,
    texts: Mapping[str, str],
    kinds: Sequence[ObjectKind] = (JOB, CONFIG_MAP),
) -> Iterator[str]:
    """A namespace with the programs; gives the name of their ConfigMap.

    What a run left that was killed is cleared away first. A namespace of somebody else's stays.

    Args:
        cluster: where.
        space: its name.
        texts: the programs, by file name.
        kinds: what such a run makes in it.

    Raises:
        AdapterError: the cluster is not reached, or refuses.
    """
    ours = _prepare(cluster, space, kinds)
    config_map = pod.programs(space, texts)
    name = str(config_map["metadata"]["name"])
    try:
        cluster.create(CONFIG_MAP, config_map)
        yield name
    finally:
        cluster.remove(CONFIG_MAP, name, space)
        if ours:
            cluster.remove(NAMESPACE, space)


def _prepare(cluster: JobCluster, space: str, kinds: Sequence[ObjectKind]) -> bool:
    """Make the namespace, or take up the one that is there; whether it is ours to remove again."""
    there = cluster.get(NAMESPACE, space)
    if there is None:
        cluster.create(NAMESPACE, pod.namespace(space))
        return True
    for kind in kinds:
        for body in cluster.list(kind, space):
            if LABEL in (body["metadata"].get("labels") or {}):
                cluster.remove(kind, str(body["metadata"]["name"]), space)
    return LABEL in (there["metadata"].get("labels") or {})


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
