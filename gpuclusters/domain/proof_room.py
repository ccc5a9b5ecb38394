"""Where a proof runs: its namespace and its programs, made before and taken away after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpuclusters.domain import proof_pod
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.proof_pod import CONFIG_MAP, JOB, LABEL
from gpuclusters.domain.proof_port import JobCluster
from gpuclusters.domain.tenancy_objects import NAMESPACE


@contextmanager
def room(
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
    config_map = proof_pod.programs(space, texts)
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
        cluster.create(NAMESPACE, proof_pod.namespace(space))
        return True
    for kind in kinds:
        for body in cluster.list(kind, space):
            if LABEL in (body["metadata"].get("labels") or {}):
                cluster.remove(kind, str(body["metadata"]["name"]), space)
    return LABEL in (there["metadata"].get("labels") or {})
